"""Submits the pipeline to Vertex AI: `python pipelines/submit.py --help`.

`--dry-run` prints the exact request and sends nothing; what is not given yet is filled in with a name that says so.
"""

import argparse
import atexit
import datetime
import json
import logging
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from components.evaluate.gate import REJECT, TOLD
from components.train.backends.vertex.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.quotas import quota_warnings
from pipelines.arguments import EXIT_REJECTED, add_flags, pipeline_arguments
from pipelines.compile import compile_specs
from pipelines.local.cache import cache_key
from pipelines.vertex.bucket import bucket_digest, decision, mounted, require_bucket, unfinished_step
from trainer.base.errors import Parser, UserError, run_cli

DEFAULT_CLUSTER = "clusters/vertex-cpu.yaml"
# Of each flag that is needed: its form, what it means, and an example.
_NEEDED = {
    "project": (r"[a-z][a-z0-9-]{4,28}[a-z0-9]", "the id of a project", "my-project"),
    "location": (r"[a-z]+-[a-z]+\d", "a region", "us-central1"),
    "bucket": (r"gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", "a bucket", "gs://my-bucket"),
    "image": (
        r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}",
        "the project's container image by digest (a tag can be moved)",
        f"us-docker.pkg.dev/my-project/training/tfrecord-training@sha256:{'0' * 64}",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns 0 when the run was submitted, and with --wait 1 when it did not succeed.

    A rejected model is a success too, unless --fail-on-reject, which needs --wait, makes it 3.
    """
    args = _parser().parse_args(argv)
    if args.fail_on_reject and not args.wait:
        raise UserError("--fail-on-reject needs --wait: nothing is known before the run has ended")
    if args.dry_run:
        missing = {flag: example for flag, (_, _, example) in _NEEDED.items() if not getattr(args, flag)}
        vars(args).update(missing)
        if missing:
            print(f"note: {', '.join(f'--{flag}' for flag in missing)} not given; examples stand in", file=sys.stderr)
        print(json.dumps(request(prepare(args), args.service_account), indent=2))
        return 0
    job = prepare(args)
    max_restarts = Cluster.from_json(job["parameter_values"]["cluster"]).scheduling.max_restarts
    code = _submit(job, args.service_account, args.wait, max_restarts)
    if code or not args.wait:
        return code
    decided = decision(job["parameter_values"]["job_dir"])
    print(f"{TOLD[decided['verdict']]}: {decided['why']}")
    return EXIT_REJECTED if args.fail_on_reject and decided["verdict"] == REJECT else 0


def _parser() -> Parser:
    p = Parser(
        prog="pipelines/submit.py",
        description="Submits the pipeline to Vertex AI Pipelines; everything is checked before.",
    )
    add_flags(p, cluster=DEFAULT_CLUSTER)
    cloud = p.add_argument_group("Vertex AI")
    cloud.add_argument("--project", default=os.environ.get("GOOGLE_CLOUD_PROJECT"), help="id of the project")
    cloud.add_argument("--location", default="us-central1", help="region")
    cloud.add_argument("--bucket", help="gs://BUCKET for everything that the run writes")
    cloud.add_argument("--image", help="container image of the project, by digest")
    cloud.add_argument("--service-account", default="", help="that the run acts as (None: the project's default)")
    cloud.add_argument("--no-cache", dest="cache", action="store_false", help="convert again")
    cloud.add_argument("--dry-run", action="store_true", help="print the request and send nothing")
    cloud.add_argument(
        "--wait",
        action="store_true",
        help="until the run has ended; training that Vertex AI gives up is submitted again, up to the cluster file's "
        "max_restarts, as long as it comes further",
    )
    return p


def prepare(args: argparse.Namespace) -> dict[str, Any]:
    """Checks every flag, and compiles the spec. Returns the arguments of an `aiplatform.PipelineJob`."""
    check_place(args)
    cluster = Cluster.load(args.cluster, args.trainer_flags)
    arguments = pipeline_arguments(args, cluster, [mounted(source) for source in args.source])
    plan_vertex(cluster, args.image, [], region=args.location)  # refuses pools that cannot run there
    for warning in quota_warnings(cluster, args.location):
        print(f"warning: {warning}", file=sys.stderr)
    digest = bucket_digest(args.source) if args.source else cache_key(args.dataset, (), args.schema)
    # Of its own until this process ends: another submission from this checkout may compile for another image.
    specs = tempfile.TemporaryDirectory(prefix="training-")
    atexit.register(specs.cleanup)
    # Two may be submitted in one second.
    run_id = f"training-{datetime.datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    root, labels = f"{args.bucket}/runs", {"run": run_id}
    timeout_s = cluster.scheduling.timeout_s
    return {
        "display_name": run_id,
        "job_id": run_id,
        "template_path": str(compile_specs(args.image, specs.name)[1]),
        "pipeline_root": root,
        "parameter_values": {
            **arguments,
            "source_digest": digest,
            "run_id": run_id,
            "job_dir": f"{root}/{run_id}/job",
            "registry": f"vertex://{args.project}/{args.location}",
            "project": args.project,
            "location": args.location,
            "scheduling_strategy": cluster.scheduling.strategy,
            # Synchronous replicas cannot go on without one of them; asynchronous ones can, and the lost one comes back.
            "restart_all": cluster.strategy != "parameter_server",
            "labels": labels,
            **({"timeout": f"{timeout_s}s"} if timeout_s else {}),
        },
        # None leaves each step what the spec says: only `convert` may come from the cache.
        "enable_caching": None if args.cache else False,
        "labels": labels,
        "project": args.project,
        "location": args.location,
    }


def check_place(args: argparse.Namespace) -> None:
    """Checks the flags that say where, and with what, something is to run: project, location, bucket and image."""
    for flag, (form, meaning, example) in _NEEDED.items():
        if not re.fullmatch(form, getattr(args, flag) or ""):
            raise UserError(f"--{flag} {getattr(args, flag) or 'is missing'}: give {meaning}, such as {example}")


def request(job: Mapping[str, Any], service_account: str) -> dict[str, Any]:
    """The `pipelineJobs.create` request as JSON; its body is made by Google's own client."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform  # 2 s

    body = aiplatform.PipelineJob(**job, credentials=AnonymousCredentials()).to_dict()
    if service_account:
        body["serviceAccount"] = service_account
    parent = f"projects/{job['project']}/locations/{job['location']}"
    return {"parent": parent, "pipelineJobId": job["job_id"], "pipelineJob": body}


def _submit(job: Mapping[str, Any], service_account: str, wait: bool, max_restarts: int) -> int:
    """Sends the run. Where it waits, training that has failed goes on in another run as long as it comes further.

    All runs together have the time limit of one.
    """
    reached, values = -1, dict(job["parameter_values"])
    limit_s, began = float(values.get("timeout", "inf").removesuffix("s")), time.monotonic()
    for attempt in range(max_restarts + 1):
        identity = {"job_id": f"{job['job_id']}-{attempt + 1}"} if attempt else {}
        submitted = _send({**job, **identity, "parameter_values": values}, service_account)
        print(f"submitted {submitted.name}: {submitted._dashboard_uri()}", flush=True)
        if not wait:
            return 0
        try:
            submitted.wait()
        except RuntimeError as error:  # what the client raises when the run failed
            print(error, file=sys.stderr)
        state = submitted.state.name.removeprefix("PIPELINE_STATE_")
        if state == "SUCCEEDED":
            return 0
        if state != "FAILED":  # the client raises nothing for a run that was cancelled
            print(f"{submitted.name}: {state.lower()}", file=sys.stderr)
            break
        before, reached = reached, unfinished_step(values["job_dir"])
        left_s = limit_s - (time.monotonic() - began)
        if reached <= before or left_s < 1 or _was_cancelled(values["run_id"]):
            break
        if "timeout" in values:
            values = {**values, "timeout": f"{int(left_s)}s"}
        print(f"training came to step {reached}; submitted again, it goes on from there", flush=True)
    return 1


def _was_cancelled(run_id: str) -> bool:
    """Whether somebody has cancelled the run's training itself, which fails the run: that is meant as its end."""
    from google.cloud import aiplatform

    jobs = aiplatform.CustomJob.list(filter=f'display_name="{run_id}"')
    return bool(jobs) and max(jobs, key=lambda job: job.create_time).state.name == "JOB_STATE_CANCELLED"


def _send(job: Mapping[str, Any], service_account: str) -> Any:
    """The `aiplatform.PipelineJob`, which has begun."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud import aiplatform

    require_bucket(job["pipeline_root"])
    # It logs, with all of its calls, that it could not ask Resource Manager whose the bucket is, and goes on.
    logging.getLogger("google.cloud.aiplatform.pipeline_jobs").addFilter(_in_a_line)
    try:
        submitted = aiplatform.PipelineJob(**job)
        submitted.submit(service_account=service_account or None)
    except GoogleAuthError as error:
        raise UserError(
            f"no credentials for Google Cloud ({error}); run: gcloud auth application-default login"
        ) from None
    except GoogleAPICallError as error:
        raise UserError(f"Vertex AI refused the run: {error.message}") from None
    return submitted


def _in_a_line(record: logging.LogRecord) -> bool:
    """A filter of a log by which an error is told in a line."""
    if record.exc_info:
        record.msg, record.exc_info = f"{record.msg}: {record.exc_info[1]}", None
    return True


if __name__ == "__main__":
    run_cli(main)
