"""A training job on Vertex AI by itself, without a pipeline: what is asked for.

submission = plan_submission(args, cluster, "us-central1")   # what `--dry-run` prints, and `submitted_job` sends
submission.body("training-1", Again(choice=0, timeout_s=3600))
"""

import argparse
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import UserError
from components.train.backends.attempts import Again, Bounds
from components.train.backends.job_settings import JobSettings, new_name
from components.train.backends.program import Goal, own_command, trainer_program
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster

_SCHEDULING = ("strategy", "timeout", "max_wait_duration", "restart_job_on_worker_restart")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """A training whose job is submitted, and submitted again."""

    name: str  # Display name of the first job; the others have a number behind it.
    project: str
    region: str
    job_dir: str  # In a bucket.
    choices: tuple[Cluster, ...]  # The machines that it may run on, in this order.
    bodies: tuple[Mapping[str, Any], ...]  # By choice, the request.
    bounds: Bounds
    goal: Goal | None  # None of another program than our trainer.

    def body(self, name: str, order: Again) -> dict[str, Any]:
        """The request of an attempt."""
        body = self.bodies[order.choice]
        limit = {} if order.timeout_s is None else {"timeout": f"{order.timeout_s}s"}
        spec = {**body["jobSpec"], "scheduling": {**body["jobSpec"]["scheduling"], **limit}}
        return {**body, "displayName": name, "jobSpec": spec}

    def gcloud(self) -> str:
        """The command that submits the first job; FILE has its `jobSpec`."""
        body = self.body(self.name, Again(choice=0, timeout_s=None))
        labels = ",".join(f"{key}={value}" for key, value in body["labels"].items())
        key = f" --kms-key {body['encryptionSpec']['kmsKeyName']}" if "encryptionSpec" in body else ""
        where = f"--region {self.region} --display-name {self.name} --labels {labels}{key}"
        return f"gcloud ai custom-jobs create {where} --config FILE"


def plan_submission(args: argparse.Namespace, cluster: Cluster, region: str) -> Submission:
    """Checks the flags of the command line, and plans the requests."""
    settings = JobSettings.of(args)
    settings.check(cluster, region)
    project = args.project or os.environ.get("GOOGLE_CLOUD_PROJECT") or ""
    command = own_command(args.command) if args.command is not None else ()
    if not args.image:
        raise UserError("the vertex back end needs a container image; add --image REF@sha256:...")
    if not args.dry_run and "@sha256:" not in args.image:
        raise UserError(f"--image {args.image}: a job may be submitted again, and a tag be moved; give REF@sha256:...")
    if not args.dry_run and not project:
        raise UserError("--project is missing; give the id of a project, such as my-project")
    name = new_name()
    planned = {"command": command, "settings": settings}
    specs = [plan_vertex(choice, args.image, args.flags, **planned) for choice in cluster.choices]
    # Our trainer's flags are checked: every replica would refuse them, some minutes later.
    program = None if command else trainer_program(cluster, args.flags)
    job_dir = program.job_dir if program else args.job_dir
    if not re.fullmatch("gs://[^/]+/.*[^/]", job_dir or ""):
        raise UserError(f"--job-dir {job_dir or 'is missing'}: the replicas need a bucket; give gs://BUCKET/NAME")
    bodies = [request(cluster, settings, each, name=name, job_dir=job_dir) for each in specs]
    bounds = Bounds(
        choices=len(bodies),
        replicas=cluster.replicas,
        max_restarts=cluster.scheduling.max_restarts,
        timeout_s=cluster.scheduling.timeout_s,
        machine_hours=args.max_machine_hours,
    )
    place = {"name": name, "project": project, "region": region, "job_dir": job_dir}
    goal = program.goal if program else None
    return Submission(choices=tuple(cluster.choices), bodies=tuple(bodies), bounds=bounds, goal=goal, **place)


def request(
    cluster: Cluster, settings: JobSettings, specs: Sequence[Mapping[str, Any]], *, name: str, job_dir: str
) -> dict[str, Any]:
    """The body of `customJobs.create`, without what is empty; its `jobSpec` is what gcloud takes as --config."""
    given = settings.arguments(cluster, name)
    labels = given.pop("labels")
    key = given.pop("encryption_spec_key_name", None)
    scheduling = {each: given.pop(each) for each in _SCHEDULING if each in given}
    output = {"output_uri_prefix": job_dir}
    spec = {"worker_pool_specs": specs, "scheduling": scheduling, **given, "base_output_directory": output}
    return {
        "displayName": name,
        "labels": labels,
        "jobSpec": _camel({name: value for name, value in spec.items() if value}),
        **({"encryptionSpec": {"kmsKeyName": key}} if key else {}),
    }


def _camel(value: Any) -> Any:
    """The same with the names that JSON has for the fields of a message."""
    if isinstance(value, Mapping):
        return {re.sub("_([a-z])", lambda found: found[1].upper(), k): _camel(each) for k, each in value.items()}
    return [_camel(each) for each in value] if isinstance(value, list | tuple) else value
