"""Runs the small jobs that show what only Vertex AI can: `make prove-cloud ARGS='--project P --bucket gs://B --image I'`.

UNPROVEN: nobody has run it against the real Vertex AI; it was run against the cloud of this
machine, which cannot show what it is for. It asks before it sends anything, with the machine-hours
that it can take, and removes what it made.
"""

import contextlib
import json
import pathlib
import re
import secrets
import sys
import time
from typing import Any

from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError
from google.cloud import aiplatform, storage

from common.cli import Parser, run_cli
from common.errors import UserError
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from pipelines.submit import check_place

# The number in docs/CLOUD.md, what is shown, and how it is found: by the ends of the jobs whose
# names begin so, and by what each attempt of each of their replicas noted under a name
# (`probe.py`).
SHOWN = (
    (1, "all jobs run and write to the bucket", "", "me"),
    (2, "whether the project can be imported", "lone", "modules"),
    (3, "a replica alone ended with 143: is there a second attempt", "lone", "me"),
    (4, "the worker ended with 134: which replicas have a second attempt", "restart", "me"),
    (5, "have attempts one name and machine, and when did they begin", "restart", "me"),
    (7, "what the mount at /gcs does", "lone", "mount"),
    (8, "whom each replica reached", "restart", "reached"),
    (10, "1.5 MB of arguments: refused, or cancelled", "large", ""),
    (11, "200 reads of one object by each replica, in milliseconds", "restart", "store"),
    (12, "how many GPUs TensorFlow finds, of one", "gpu", "gpus"),
)
_MACHINE = {"machine": "n1-standard-4"}
_PAIR = {"strategy": "multi_worker_mirrored", "chief": _MACHINE, "worker": _MACHINE}
_LONE = {"strategy": "one_device", "chief": _MACHINE}
_GPU = {"strategy": "one_device", "chief": {**_MACHINE, "accelerator": {"type": "NVIDIA_TESLA_T4"}}}
# Of each job: its pools, the code with which its last replica ends at first, whether all start
# again.
JOBS = {
    "restart-all": (_PAIR, 134, True),
    "restart-one": (_PAIR, 134, False),
    "lone": (_LONE, 143, True),
    "large": (_LONE, 0, True),  # with too many arguments, and cancelled
}
_LIMIT_S, _QUEUE_S = 15 * 60, 20 * 60  # of a job, and for machines before it begins
_ENDED = re.compile("SUCCEEDED|FAILED|CANCELLED|EXPIRED")


def requests(place: str, args: Any) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By name of the job the arguments of `aiplatform.CustomJob`, and those of its `submit`."""
    source = pathlib.Path(__file__).with_name("probe.py").read_text(encoding="utf-8")
    made = {}
    for name, (pools, code, restart_all) in {
        **JOBS,
        **({"gpu": (_GPU, 0, True)} if args.gpu else {}),
    }.items():
        flags = [f"{place}/{name}", str(code)] if name != "large" else ["x" * 100_000] * 15
        command = ("python", "-c", source)
        pools = plan_vertex(Cluster(**pools), args.image, flags, command=command)
        job = {
            "display_name": f"{place.rpartition('/')[2]}-{name}",
            "worker_pool_specs": pools,
            "staging_bucket": place,
        }
        how = {"timeout": _LIMIT_S, "restart_job_on_worker_restart": restart_all}
        made[name] = (job, {**how, "service_account": args.service_account or None})
    return made


def shown(requests: dict[str, Any]) -> str:
    """The requests as JSON; of a long text only how it begins."""
    text = json.dumps(requests, indent=1)
    return re.sub(r'"((?:[^"\\]|\\.){60})(?:[^"\\]|\\.){2000,}"', r'"\1..."', text) + "\n"


def machine_hours(requests: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> float:
    """What everything takes at most; the large request is cancelled before it has machines."""
    pools = [
        pool
        for name, (job, _) in requests.items()
        if name != "large"
        for pool in job["worker_pool_specs"]
    ]
    return sum(pool["replica_count"] for pool in pools) * _LIMIT_S / 3600


def prove(
    requests: dict[str, tuple[dict[str, Any], dict[str, Any]]], bucket: Any, directory: str
) -> str:
    """Sends the requests, waits for what comes of them, and removes it. Returns the answers, a line each."""
    jobs, states, notes = {}, {}, {}
    bucket.blob(f"{directory}/shared").upload_from_string(b"x" * 1000)
    try:
        for name, (new, how) in requests.items():
            job = aiplatform.CustomJob(**new)
            try:
                job.submit(**how)
            except GoogleAPICallError as error:
                states[name] = f"refused ({error.message})"
            else:
                jobs[name] = job
        with contextlib.suppress(KeyError, GoogleAPICallError):  # it was refused, or has ended
            jobs["large"].cancel()
        for name, job in jobs.items():
            states[name] = _wait(job, _LIMIT_S + _QUEUE_S)
        for blob in bucket.list_blobs(prefix=f"{directory}/"):
            if name := re.fullmatch(r"[^/]+/([^/]+/[^/]+-\d+)\.json", blob.name):
                notes[name[1]] = json.loads(blob.download_as_bytes())
        return "".join(
            f"{number}. {what}: {_found(states, notes, *how)}\n" for number, what, *how in SHOWN
        )
    finally:
        for job in jobs.values():
            _remove(job)
        for blob in bucket.list_blobs(prefix=f"{directory}/"):
            blob.delete()


def _found(states: dict[str, str], notes: dict[str, dict[str, Any]], job: str, key: str) -> str:
    """How the jobs ended whose names begin with `job`, and what their notes have under `key`."""
    told = [f"{name} {state}" for name, state in states.items() if name.startswith(job)]
    told += [
        f"{name} {note[key]}"
        for name, note in sorted(notes.items())
        if name.startswith(job) and key in note
    ]
    return ", ".join(told) or "not looked at"


def _wait(job: Any, limit_s: float) -> str:
    """The state in which the job ended, or is given up, with its error."""
    deadline = time.monotonic() + limit_s
    while not _ENDED.search(state := job.state.name) and time.monotonic() < deadline:
        time.sleep(5)
    return f"{state.removeprefix('JOB_STATE_').lower()} {job.error.message if job.error else ''}".strip()


def _remove(job: Any) -> None:
    """Cancels and deletes a job; one that cannot be deleted is named."""
    try:
        if not _ENDED.search(job.state.name):
            job.cancel()
            _wait(job, 300)
        job.delete()
    except GoogleAPICallError as error:
        print(f"left behind: {job.resource_name} ({error.message})", file=sys.stderr)


def parser() -> Parser:
    """The command line."""
    p = Parser(
        prog="make prove-cloud",
        description="Shows on Vertex AI what docs/CLOUD.md says that only it can show.",
    )
    p.add_argument("--project", required=True, help="id of the project")
    p.add_argument("--location", default="us-central1", help="region")
    p.add_argument(
        "--bucket",
        required=True,
        help="gs://BUCKET for what the jobs note, in a directory that is deleted",
    )
    p.add_argument("--image", required=True, help="container image of the project, by digest")
    p.add_argument(
        "--service-account", default="", help="that the jobs act as (None: the project's default)"
    )
    p.add_argument(
        "--gpu", action="store_true", help="one more job, with a T4; IMAGE must be one for GPUs"
    )
    p.add_argument("--dry-run", action="store_true", help="print the requests and send nothing")
    p.add_argument("--yes", action="store_true", help="do not ask")
    return p


def main() -> int:
    """Runs the command line. Returns 1 if the answer to its question is not yes."""
    args = parser().parse_args()
    check_place(args)
    directory = f"prove-{secrets.token_hex(3)}"
    made = requests(f"{args.bucket}/{directory}", args)
    if args.dry_run:
        print(shown(made), end="")
        return 0
    print(
        f"{len(made)} jobs in {args.project}, {args.location}; at most {machine_hours(made):.2f} "
        "machine-hours"
    )
    if not args.yes and input("send them? [y/N] ") != "y":
        return 1
    try:
        aiplatform.init(project=args.project, location=args.location)
        bucket = storage.Client(project=args.project).bucket(args.bucket.removeprefix("gs://"))
        print(prove(made, bucket, directory))
    except (GoogleAPICallError, GoogleAuthError) as error:
        raise UserError(f"Google Cloud refused: {error}") from None
    return 0


if __name__ == "__main__":
    run_cli(main)
