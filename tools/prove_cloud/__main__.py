"""Runs the small jobs that show what only Vertex AI can.

    make prove-cloud ARGS='--project P --bucket gs://B --image I'

UNPROVEN: nobody has run it against the real Vertex AI; it was run against the cloud of this
machine, which cannot show what it is for. Before it sends anything it lists what it would show and
what that costs at most, and asks. It prints rows for docs/PROOFS.md, and removes what it made.
"""

import contextlib
import datetime
import json
import pathlib
import re
import secrets
import time

import yaml
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import AuthorizedSession
from google.cloud import aiplatform, storage

from common.cli import Parser, run_cli
from common.errors import UserError
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from pipelines.submit import check_place
from tools.prove_cloud import guesses

_TABLES = yaml.safe_load(pathlib.Path(__file__).with_name("jobs.yaml").read_text())
JOBS, SHOWN, _PRICES = _TABLES["jobs"], _TABLES["shown"], _TABLES["prices"]
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


def cost(requests):
    """Returns the most that all jobs cost: machine-hours, and US dollars.

    The large job is cancelled before it has machines, as is what breaks a rule and is taken.
    """
    hours, dollars = 0.0, _PRICES["run"]
    jobs = [job for name, (job, _) in requests.items() if name != "large"]
    for pool in (pool for job in jobs for pool in job["worker_pool_specs"]):
        machine, of_pool = pool["machine_spec"], pool["replica_count"] * _LIMIT_S / 3600
        price = _PRICES[machine["machine_type"]]
        if gpu := machine.get("accelerator_type"):
            price += _PRICES[gpu] * machine["accelerator_count"]
        hours += of_pool
        dollars += of_pool * price
    return hours, dollars


def claims():
    """Yields what is shown, with its number in docs/CLOUD.md."""
    for number, what, *_ in SHOWN:
        yield f"{number}. {what}"
    yield "13. a model's id is chosen, and what becomes of a second upload of it"
    for field, rule in guesses.GUESSES.items():
        yield f"17. `{field}`: {rule}"


def prove(requests, bucket, directory, broken):
    """Sends all requests, waits for the answers, and removes what was made.

    Args:
      requests: Of jobs, as `requests` makes them.
      bucket: Bucket of the jobs, a `storage.Bucket`.
      directory: Name in the bucket of the directory that they write to.
      broken: A `guesses.Requests`.

    Returns:
      The answer to each of `claims`.
    """
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
        refusals = broken.refusals()
        for name, job in jobs.items():
            states[name] = _wait(job, _LIMIT_S + _QUEUE_S)
        for blob in bucket.list_blobs(prefix=f"{directory}/"):
            if name := re.fullmatch(r"[^/]+/([^/]+/[^/]+-\d+)\.json", blob.name):
                notes[name[1]] = json.loads(blob.download_as_bytes())
        answers = [_answer(states, notes, *how) for _, _, *how in SHOWN]
        answers.append(broken.second)
        return [*answers, *(refusals.get(field, "not looked at") for field in guesses.GUESSES)]
    finally:
        for job in jobs.values():
            broken.created.append(job.resource_name)
        broken.undo()
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
    print("to be shown:", *claims(), sep="\n  ")
    hours, dollars = cost(made)
    most = f"at most {hours:.2f} machine-hours, about {dollars:.2f} USD"
    print(f"{len(made)} jobs in {args.project}, {args.location}; {most}")
    if not args.yes and input("send them? [y/N] ") != "y":
        return 1
    try:
        aiplatform.init(project=args.project, location=args.location)
        bucket = storage.Client(project=args.project).get_bucket(args.bucket.removeprefix("gs://"))
        config = aiplatform.initializer.global_config
        broken = guesses.Requests(
            AuthorizedSession(config.credentials),
            f"https://{config.get_client_options().api_endpoint}",
            guesses.values_for(args, directory, bucket.project_number),
        )
        answers = prove(made, bucket, directory, broken)
        print("rows for docs/PROOFS.md:")
        when = f"`make prove-cloud`, {datetime.date.today()}, {args.location}"
        for claim, answer in zip(claims(), answers, strict=True):
            print("|", " | ".join(text.replace("|", "/") for text in (claim, answer, when)), "|")
    except (GoogleAPICallError, GoogleAuthError, OSError) as error:
        raise UserError(f"Google Cloud refused, or does not answer: {error}") from None
    return 0


if __name__ == "__main__":
    run_cli(main)
