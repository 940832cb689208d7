"""Runs the small jobs that show what only Vertex AI can.

    make prove-cloud ARGS='--project P --bucket gs://B --image I'

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

import yaml
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError
from google.cloud import aiplatform, storage

from common.cli import Parser, run_cli
from common.errors import UserError
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from pipelines.submit import check_place

_TABLES = yaml.safe_load(pathlib.Path(__file__).with_name("jobs.yaml").read_text())
JOBS, SHOWN = _TABLES["jobs"], _TABLES["shown"]
_LIMIT_S, _QUEUE_S = 15 * 60, 20 * 60  # of a job, and for machines before it begins
_ENDED = re.compile("SUCCEEDED|FAILED|CANCELLED|EXPIRED")


def requests(place, args):
    """Makes the requests of all jobs, which write below a place in the bucket.

    Returns:
      By name of the job the arguments of `aiplatform.CustomJob`, and those of its `submit`.
    """
    source = pathlib.Path(__file__).with_name("probe.py").read_text(encoding="utf-8")
    made = {}
    for name, about in JOBS.items():
        pools, flags = Cluster(**about["pools"]), [f"{place}/{name}", str(about["code"])]
        flags = flags if name != "large" else ["x" * 100_000] * 15
        command = ("python", "-c", source)
        job = {
            "display_name": f"{place.rpartition('/')[2]}-{name}",
            "worker_pool_specs": plan_vertex(pools, args.image, flags, command=command),
            "staging_bucket": place,
        }
        how = {"timeout": _LIMIT_S, "restart_job_on_worker_restart": about["restart_all"]}
        made[name] = (job, {**how, "service_account": args.service_account or None})
    if not args.gpu:
        del made["gpu"]
    return made


def shown(requests):
    """The requests as JSON; of a long text only how it begins."""
    text = json.dumps(requests, indent=1)
    return re.sub(r'"((?:[^"\\]|\\.){60})(?:[^"\\]|\\.){2000,}"', r'"\1..."', text) + "\n"


def machine_hours(requests):
    """Returns the most that all jobs take; the large one is cancelled before it has machines."""
    jobs = [job for name, (job, _) in requests.items() if name != "large"]
    machines = [pool["replica_count"] for job in jobs for pool in job["worker_pool_specs"]]
    return sum(machines) * _LIMIT_S / 3600


def prove(requests, bucket, directory):
    """Sends the requests, waits for the answers, a line each, and removes what was made."""
    jobs, states, notes = {}, {}, {}
    bucket.blob(f"{directory}/shared").upload_from_string(b"x" * 1000)
    try:
        for name, (new, how) in requests.items():
            job = aiplatform.CustomJob(**new)
            try:
                job.submit(**how)
                jobs[name] = job
            except GoogleAPICallError as error:
                states[name] = f"refused ({error.message})"
        with contextlib.suppress(KeyError, GoogleAPICallError):  # it was refused, or has ended
            jobs["large"].cancel()
        for name, job in jobs.items():
            states[name] = _wait(job, _LIMIT_S + _QUEUE_S)
        for blob in bucket.list_blobs(prefix=f"{directory}/"):
            if name := re.fullmatch(r"[^/]+/([^/]+/[^/]+-\d+)\.json", blob.name):
                notes[name[1]] = json.loads(blob.download_as_bytes())
        return "".join(
            f"{number}. {what}: {_answer(states, notes, *how)}\n" for number, what, *how in SHOWN
        )
    finally:
        for job in jobs.values():
            _remove(job)
        for blob in bucket.list_blobs(prefix=f"{directory}/"):
            blob.delete()


def _answer(states, notes, job, key):
    """Returns the ends of jobs whose names begin with `job`, and their notes under `key`."""
    known = [*states.items()]
    known += [(name, note[key]) for name, note in sorted(notes.items()) if key in note]
    lines = [f"{name} {facts}" for name, facts in known if name.startswith(job)]
    return ", ".join(lines) or "not looked at"


def _wait(job, limit_s):
    """The state in which the job ended, or is given up, with its error."""
    deadline = time.monotonic() + limit_s
    while not _ENDED.search(state := job.state.name) and time.monotonic() < deadline:
        time.sleep(5)
    message = job.error.message if job.error else ""
    return f"{state.removeprefix('JOB_STATE_').lower()} {message}".strip()


def _remove(job):
    """Cancels and deletes a job; one that cannot be deleted is named."""
    try:
        if not _ENDED.search(job.state.name):
            job.cancel()
            _wait(job, 300)
        job.delete()
    except GoogleAPICallError as error:
        print(f"left behind: {job.resource_name} ({error.message})", file=sys.stderr)


def parser():
    """The command line."""
    about = "Shows on Vertex AI what docs/CLOUD.md says that only it can show."
    p = Parser(prog="make prove-cloud", description=about)
    p.add_argument("--project", required=True, help="id of the project")
    p.add_argument("--location", default="us-central1", help="region")
    p.add_argument("--bucket", required=True, help="gs://BUCKET; a directory is made and deleted")
    p.add_argument("--image", required=True, help="container image of the project, by digest")
    p.add_argument("--service-account", help="of the jobs (None: the project's default)")
    p.add_argument("--gpu", action="store_true", help="one more job, with a T4 and IMAGE for GPUs")
    p.add_argument("--dry-run", action="store_true", help="print the requests and send nothing")
    p.add_argument("--yes", action="store_true", help="do not ask")
    return p


def main():
    """Runs the command line. Returns 1 if the answer to its question is not yes."""
    args = parser().parse_args()
    check_place(args)
    directory = f"prove-{secrets.token_hex(3)}"
    made = requests(f"{args.bucket}/{directory}", args)
    if args.dry_run:
        print(shown(made), end="")
        return 0
    hours = f"at most {machine_hours(made):.2f} machine-hours"
    print(f"{len(made)} jobs in {args.project}, {args.location}; {hours}")
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
