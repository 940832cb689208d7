"""Runs the small jobs that show what only Vertex AI can: `make prove-cloud ARGS='--project P --bucket gs://B --image I'`.

UNPROVEN: nobody has run it against the real Vertex AI; it was run against the cloud of this machine, which cannot show
what it is for. It asks before it sends anything, with the most that it can cost, and removes what it made. The list of
docs/CLOUD.md, filled in, is what it prints and writes.
"""

import contextlib
import json
import pathlib
import re
import secrets
import sys
import time
from typing import Any

from google.api_core.exceptions import Forbidden, GoogleAPICallError
from google.api_core.retry import Retry
from google.auth.exceptions import GoogleAuthError
from google.cloud import aiplatform_v1 as v1
from google.cloud import storage

from pipelines import submit
from tests.prove_cloud.bodies import JOBS, RUN_S, most_usd, requests, shown
from tests.prove_cloud.findings import Notes, Seen, filled
from trainer.base.errors import Parser, UserError, run_cli

_ENDED = re.compile("SUCCEEDED|FAILED|CANCELLED|EXPIRED")
_QUEUE_S = 20 * 60.0  # that a job may wait for machines
_LIST = pathlib.Path(__file__).parents[2] / "docs" / "CLOUD.md"


class _Cloud:
    """The clients, and what was made with them."""

    def __init__(self, args: Any, **client: Any) -> None:
        options = {"client_options": {"api_endpoint": f"{args.location}-aiplatform.googleapis.com"}, **client}
        self._parent = f"projects/{args.project}/locations/{args.location}"
        self._jobs, self._runs = v1.JobServiceClient(**options), v1.PipelineServiceClient(**options)
        store = storage.Client(project=args.project, credentials=client.get("credentials"))
        self.bucket = store.bucket(args.bucket.removeprefix("gs://"))
        self._made: dict[str, str] = {}  # resource names by name of the job

    def create(self, name: str, body: dict[str, Any], identity: str) -> str:
        """Sends a request. Returns "", or the words in which it was refused."""
        text = json.dumps(body)
        try:
            if name.startswith("pipeline"):
                job = v1.PipelineJob.from_json(text)
                ids = {"pipeline_job_id": f"{identity}-{name}"}
                self._made[name] = self._runs.create_pipeline_job(parent=self._parent, pipeline_job=job, **ids).name
            else:
                job = v1.CustomJob.from_json(text)
                self._made[name] = self._jobs.create_custom_job(parent=self._parent, custom_job=job).name
        except GoogleAPICallError as error:
            return f"refused ({error.message})"
        return ""

    def ask(self, name: str, verb: str) -> Any:
        """Does `get`, `cancel` or `delete` with a job."""
        client, kind = (self._runs, "pipeline_job") if name.startswith("pipeline") else (self._jobs, "custom_job")
        return getattr(client, f"{verb}_{kind}")(name=self._made[name], retry=Retry(timeout=300))

    def wait(self, name: str, limit_s: float) -> str:
        """State in which the job ended, or is given up, with its error."""
        deadline = time.monotonic() + limit_s
        while not _ENDED.search((job := self.ask(name, "get")).state.name) and time.monotonic() < deadline:
            time.sleep(5)
        return f"{job.state.name.partition('_STATE_')[2].lower()} {job.error.message}".strip()

    def notes(self, prefix: str) -> Notes:
        """What the replicas of a job have noted, by replica and kind, in the order of attempts."""
        found: Notes = {}
        for blob in sorted(self.bucket.list_blobs(prefix=prefix), key=lambda blob: blob.time_created):
            replica, _, kind = blob.name.removeprefix(prefix).removesuffix(".json").rsplit("-", 2)
            found.setdefault(f"{replica}-{kind}", []).append(json.loads(blob.download_as_bytes()))
        return found

    def clean(self, prefix: str) -> None:
        """Cancels and deletes the jobs, and deletes the objects; what cannot be deleted is named."""
        for name, resource in self._made.items():
            try:
                if not _ENDED.search(self.ask(name, "get").state.name):
                    self.ask(name, "cancel")
                    self.wait(name, 300)
                self.ask(name, "delete").result()
            except GoogleAPICallError as error:
                print(f"left behind: {resource} ({error.message})", file=sys.stderr)
        for blob in self.bucket.list_blobs(prefix=prefix):
            blob.delete()


def prove(identity: str, bodies: dict[str, dict[str, Any]], cloud: _Cloud) -> Seen:
    """Sends the requests, and waits for what comes of them."""
    cloud.bucket.blob(f"{identity}/shared").upload_from_string(b"x" * 1000)
    refused = {name: cloud.create(name, body, identity) for name, body in bodies.items() if name != "pipeline-2"}
    if "large" not in (states := {name: told for name, told in refused.items() if told}):
        states["large"] = f"accepted ({cloud.wait('large', 0)})"
        with contextlib.suppress(GoogleAPICallError):  # it has ended
            cloud.ask("large", "cancel")
    for name in sorted(refused.keys() - states.keys(), key=lambda name: name != "pipeline-1"):
        states[name] = cloud.wait(name, RUN_S if name == "pipeline-1" else 15 * 60 + _QUEUE_S)
        print(f"{name}: {states[name]}", flush=True)
    states["pipeline-2"] = cloud.create("pipeline-2", bodies["pipeline-2"], identity) or cloud.wait("pipeline-2", RUN_S)
    with contextlib.suppress(Forbidden):  # of the bucket itself, whose objects may be used
        cloud.bucket.reload()
    return Seen(
        states=states,
        notes={name: cloud.notes(f"{identity}/{name}/") for name in (*JOBS, "gpu") if name in bodies},
        executed=len(list(cloud.bucket.list_blobs(prefix=f"{identity}/pipeline/once-"))),
        location=cloud.bucket.location or "a region that is not told",
    )


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="make prove-cloud", description="Shows on Vertex AI what docs/CLOUD.md says that only it can show.")
    p.add_argument("--project", required=True, help="id of the project")
    p.add_argument("--location", default="us-central1", help="region")
    p.add_argument("--bucket", required=True, help="gs://BUCKET for what the jobs note, in a directory that is deleted")
    p.add_argument("--image", required=True, help="container image of the project, by digest")
    p.add_argument("--service-account", default="", help="that the jobs act as (None: the project's default)")
    p.add_argument("--gpu", action="store_true", help="one more job, with a T4; IMAGE must be one for GPUs")
    p.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/proved.md"), help="for the filled list")
    p.add_argument("--dry-run", action="store_true", help="print the requests and send nothing")
    p.add_argument("--yes", action="store_true", help="do not ask")
    return p


def main() -> int:
    """Runs the command line. Returns 1 if the answer to its question is not yes."""
    args = parser().parse_args()
    submit.check_place(args)
    identity = f"prove-{secrets.token_hex(3)}"
    bodies = requests(identity, args)
    if args.dry_run:
        print(shown(bodies), end="")
        return 0
    print(f"{len(bodies)} jobs in {args.project}, {args.location}; at most {most_usd(args):.2f} USD, and half an hour")
    if not args.yes and input("send them? [y/N] ") != "y":
        return 1
    try:
        cloud = _Cloud(args)
        try:
            seen = prove(identity, bodies, cloud)
        finally:
            cloud.clean(f"{identity}/")
    except (GoogleAPICallError, GoogleAuthError) as error:
        raise UserError(f"Google Cloud refused: {error}") from None
    text = filled(_LIST.read_text(encoding="utf-8"), seen)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(f"{text}\n", encoding="utf-8")
    print(f"{text}\n\nwritten to {args.output}")
    return 0


if __name__ == "__main__":
    run_cli(main)
