"""The vertex back end: a training job on Vertex AI by itself, without a pipeline."""

import contextlib
import dataclasses
import functools
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from common.cli import flag
from common.errors import UserError
from common.flags import positive
from components.train.backends import vertex_training
from components.train.backends.attempts import Attempt, Bounds, JobStore
from components.train.backends.backend import Backend, Job, Status
from components.train.backends.docker import DockerOptions
from components.train.backends.job_settings import DEFAULT_REGION, JobSettings, new_name
from components.train.backends.vertex_client import CloudLogs, Ending, Jobs, ending
from components.train.backends.vertex_training import Submission, Training
from components.train.backends.worker_pools import plan_vertex
from components.train.supervision.output import Output
from components.train.supervision.signals import signal_socket
from trainer.cluster.member import ROLES

_SCHEDULING = ("strategy", "timeout", "restart_job_on_worker_restart")
_STATES = {None: "running", Ending.SUCCEEDED: "done", Ending.CANCELLED: "stopped"}
_vertex = functools.partial(flag, group="a job of Vertex AI (--backend vertex)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VertexOptions(JobSettings):
    """Flags of the vertex back end."""

    image: str | None = dataclasses.field(default=None, metadata=DockerOptions.__dataclass_fields__["image"].metadata)
    project: str | None = _vertex(str, "id of the project (GOOGLE_CLOUD_PROJECT without)", metavar="ID")
    region: str | None = _vertex(
        str, f"of Vertex AI (the cluster file's, else {DEFAULT_REGION})", "--location", metavar="REGION"
    )
    max_machine_hours: float | None = _vertex(positive, "that all its jobs together may take (any)")


class VertexBackend(Backend):
    """Runs a job as a custom job of Vertex AI, and submits it again as `restart_policy` decides.

    SIGINT and SIGTERM cancel the job, whose replicas save. The job outlives this process: SIGHUP, a repeated signal and SIGKILL
    only leave it, and the same command for the same job directory then follows the job that runs.

    Ignored here: nothing of the cluster file. Refused: a job directory or dataset outside of buckets, an image without a
    digest, pools without a machine type, and the flags of processes of this machine (`--code`, `--log-dir`, ...).
    """

    name = "vertex"
    Options = VertexOptions
    ignores_because = "Vertex AI runs it by rules of its own"
    control_flags = ("project", "region")

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[Submission]:
        """Checks the settings against the cluster, and makes the requests; asks nobody."""
        settings, cluster, program = self.options, job.cluster, job.program
        region = settings.region or job.region or DEFAULT_REGION
        settings.check(region)
        if not settings.image:
            raise UserError("the vertex back end needs a container image; add --image REF@sha256:...")
        if not job.dry_run and "@sha256:" not in settings.image:
            raise UserError(
                f"--image {settings.image}: a job may be submitted again, and a tag be moved; give REF@sha256:..."
            )
        if not re.fullmatch("gs://[^/]+/.*[^/]", program.job_dir):
            raise UserError(f"--job-dir {program.job_dir}: the replicas need a bucket; give gs://BUCKET/NAME")
        name = new_name()
        arguments = settings.arguments(cluster, name) | {
            "base_output_directory": {"output_uri_prefix": program.job_dir}
        }
        specs = [
            plan_vertex(choice, settings.image, program.args, command=program.portable, env=settings.environment)
            for choice in cluster.choices
        ]
        notes = list(self.ignored(cluster))
        if misnamed := [role for role, name in zip(cluster.pools, ROLES, strict=False) if role != name]:
            notes.append(
                f"Vertex AI's TF_CONFIG gives {' and '.join(misnamed)} another role, by position; our trainer goes by "
                "CLUSTER_SPEC and TRAINER_POOL_ROLES instead, and so must a program of yours"
            )
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        yield Submission(
            name=name,
            project="" if job.dry_run else self._project,
            region=region,
            job=job,
            bodies=tuple(request(name, {"worker_pool_specs": each, **arguments}) for each in specs),
            bounds=Bounds(
                cluster=cluster,
                timeout_s=cluster.scheduling.timeout_s,
                machine_hours=settings.max_machine_hours,
            ),
        )

    def submit(self, plan: Submission, output: Output) -> int:
        """Submits the job and follows it to its end, in as many attempts as are allowed."""
        with signal_socket() as signals:
            return Training(plan, output, signals).run()

    def status(self, job_dir: str) -> Status:
        """Reads the record of the attempts, and asks Vertex AI for one that has not ended."""
        attempt, job = self._last_attempt(job_dir)
        state = _STATES.get(ending(job) if job else attempt.ending, "failed")
        line = f"{state}, {attempt.display_name} on {attempt.shape}, submitted {attempt.submitted}"
        return Status(state=state, lines=[line, attempt.error])

    def cancel(self, job_dir: str) -> int:
        """Cancels the job, and waits until its machines are gone."""
        attempt, job = self._last_attempt(job_dir)
        if not job or ending(job):
            raise UserError(f"{job_dir}: nothing is running here; the last that did is {self.status(job_dir).state}")
        print(f"stopping {attempt.display_name}; its replicas save first", flush=True)
        self._jobs.cancel(job.name)
        while not (how := ending(job)):
            time.sleep(vertex_training.POLL_S)
            job = self._jobs.get(job.name)
        return 0 if how in _STATES else 1

    def logs(self, job_dir: str) -> Iterator[tuple[str, str]]:
        """Reads Cloud Logging."""
        attempt, job = self._last_attempt(job_dir)
        for name in [job.name] if job else attempt.jobs:
            yield from CloudLogs(self._project, name.rpartition("/")[2], list(attempt.machines)).new()

    @property
    def _project(self) -> str:
        project = self.options.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        if not project:
            raise UserError("--project is missing; give the id of a project, such as my-project")
        return project

    @property
    def _jobs(self) -> Jobs:
        return Jobs(self._project, self.options.region or DEFAULT_REGION)

    def _last_attempt(self, job_dir: str) -> tuple[Attempt, Any]:
        """Returns the newest attempt of a job, and its custom job where that has not ended as far as is recorded."""
        store = JobStore(job_dir)
        store.load()
        for attempt in reversed(store.attempts):
            job = None if attempt.ending else self._jobs.named(attempt.display_name)
            if attempt.ending or job:  # Or else the request was not sent.
                return attempt, job
        raise UserError(f"{job_dir}: no job ran here with components.train; name the --job-dir of one")


def request(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body of `customJobs.create` by the arguments of `CustomTrainingJobOp`, without those that are empty."""
    spec = {key: value for key, value in arguments.items() if value and key not in _SCHEDULING}
    key = spec.pop("encryption_spec_key_name", None)
    labels = spec.pop("labels")
    spec["scheduling"] = {key: arguments[key] for key in _SCHEDULING if key in arguments}
    encryption = {"encryptionSpec": {"kmsKeyName": key}} if key else {}
    return {"displayName": name, "labels": labels, "jobSpec": _camel(spec), **encryption}


def _camel(value: Any) -> Any:
    """Returns the same with the names that JSON has for the fields of a message."""
    if isinstance(value, Mapping):
        return {re.sub("_([a-z])", lambda match: match[1].upper(), k): _camel(each) for k, each in value.items()}
    return [_camel(each) for each in value] if isinstance(value, list | tuple) else value
