"""A run for Vertex AI, described whole: what is shown, checked, sent, kept in the bucket, and sent again."""

import dataclasses
import functools
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from common.cli import as_list
from common.errors import UserError
from common.storage.files import parsed_json, write_text
from components.register import serving
from components.train.backends.attempts import Again
from components.train.backends.job_settings import JobSettings, new_name
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster
from pipelines.arguments import pipeline_arguments
from pipelines.cloud_options import DEFAULT_CLUSTER, check_place, scheduled_as
from pipelines.compile import compile_specs
from pipelines.config import Config

RECORD = "run.json"  # in a run's directory: what was submitted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """A run, or what a schedule makes runs of."""

    run: str  # Its name, and that of its directory, or the schedule's name.
    image: str  # That the steps and the training run in, by digest.
    job: Mapping[str, Any]  # Arguments of `aiplatform.PipelineJob`, all but the spec's path and the job's id.
    body: Mapping[str, Any]  # What the resource has beside what that makes of them.
    resources: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)  # CPUs and memory by step.
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # `JobSettings`.
    scheduled: bool = False
    timeout_s: int | None = None  # Of the training, in this attempt.
    max_machine_hours: float | None = None  # Of the training, all attempts together.

    @property
    def values(self) -> Mapping[str, Any]:
        """Arguments of the pipeline by name."""
        return self.job["parameter_values"]

    @functools.cached_property
    def cluster(self) -> Cluster:
        """What the training runs on."""
        return Cluster.from_json(self.values["cluster"])

    @property
    def job_settings(self) -> JobSettings:
        """Settings of the training job."""
        return JobSettings(**self.settings)

    @property
    def directory(self) -> str:
        """Of the run, in its bucket."""
        return f"{self.job['pipeline_root']}/{self.run}"

    def save(self) -> None:
        """Keeps it in the run's directory."""
        write_text(f"{self.directory}/{RECORD}", json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, bucket: str, run: str) -> "Submission":
        """Returns the run of that name, as it was submitted."""
        with parsed_json(f"{bucket}/runs/{run}/{RECORD}") as fields:
            if fields is None:
                raise UserError(f"--resume {run}: no such run in {bucket}; submit.py --list shows them")
            return cls(**fields)

    def attempt(self, order: Again) -> "Submission":
        """Returns the same on the machines, and within the time, of an attempt."""
        values = {**self.values, "cluster": self.cluster.choices[order.choice].to_json()}
        return dataclasses.replace(self, job={**self.job, "parameter_values": values}, timeout_s=order.timeout_s)

    def request(self, job_id: str) -> dict[str, Any]:
        """Returns the body of `pipelineJobs.create`, which a schedule has too; asks nobody."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import aiplatform  # 2 s

        job = self.job_settings.arguments(self.cluster, "" if self.scheduled else self.run)
        options = {
            "job": {**job, "timeout": f"{self.timeout_s}s"} if self.timeout_s else job,
            "job_args": self.job_settings.as_flags(),
            "scheduled": self.scheduled,
            "resources": self.resources,
        }
        with tempfile.TemporaryDirectory(prefix="training-") as place:
            [spec] = compile_specs(self.image, place, ["vertex"], **options)
            try:
                resource = aiplatform.PipelineJob(
                    **self.job, job_id=job_id, template_path=str(spec), credentials=AnonymousCredentials()
                )
            except (TypeError, ValueError) as error:
                raise UserError(f"the pipeline does not take these arguments: {error}") from None
        parent = f"projects/{self.job['project']}/locations/{self.job['location']}"
        body = {**resource.to_dict(), **{key: value for key, value in self.body.items() if value}}
        return {"parent": parent, "pipelineJobId": job_id, "pipelineJob": body}


def prepare(args: Config, *, is_scheduled: bool = False) -> Submission:
    """Checks every key by itself and against the others, and asks nobody; a mistake is a UserError."""
    check_place(args)
    cluster = scheduled_as(load_cluster(args.cluster or DEFAULT_CLUSTER, as_list(args.trainer_flags)), args)
    trained_by = args.training_service_account or args.service_account
    settings = dataclasses.replace(JobSettings.of(args), training_service_account=trained_by)
    settings.check(args.location)
    plan_vertex(cluster, args.image, [])  # refuses pools that cannot run there
    if args.serving_image:
        serving.check("--serving-image", args.serving_image)
    sources = as_list(args.source)
    if args.dataset == "bigquery":
        args = args.model_copy(update={"export_dir": args.export_dir or f"{args.bucket}/exports"})
    else:
        sources = [require_bucket(source) for source in sources]
    run, root = new_name(), f"{args.bucket}/runs"
    place = {"project": args.project, "location": args.location}
    arguments = {
        **pipeline_arguments(args, cluster, sources),
        "run_id": run,
        "job_dir": root if is_scheduled else f"{root}/{run}/job",
        "registry": f"vertex://{args.project}/{args.location}",
        "serving_image": args.serving_image,
        **place,
    }
    return Submission(
        run=run,
        image=args.image,
        resources=dict(map(_step_resources, as_list(args.step_resources))),
        scheduled=is_scheduled,
        max_machine_hours=args.max_machine_hours,
        settings=dataclasses.asdict(settings),
        job={
            "display_name": run,
            "pipeline_root": root,
            "parameter_values": arguments,
            "encryption_spec_key_name": settings.encryption_key,
            "labels": settings.all_labels("" if is_scheduled else run),
            **place,
        },
        body={"serviceAccount": args.service_account, "network": settings.network},
    )


def require_bucket(source: str) -> str:
    """Returns `gs://BUCKET/DIR` without a slash at its end, or a UserError: no other place can be read on Vertex AI."""
    if not re.match("gs://[^/]", source):
        raise UserError(f"--source {source}: steps on Vertex AI read buckets; upload it and give gs://BUCKET/DIR")
    return source.rstrip("/")


def _step_resources(text: str) -> tuple[str, tuple[str, str]]:
    """Returns step, CPUs and memory of `convert=8:32G`."""
    step, cpus, memory = re.split("[=:]", text)
    return step, (cpus, memory)
