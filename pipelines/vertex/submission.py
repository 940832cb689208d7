"""A run for Vertex AI, described whole: what is shown, checked, sent, kept in the bucket, and sent again."""

import dataclasses
import functools
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from common.cli import as_list
from common.errors import UserError
from components.register import serving
from components.train.backends.job_settings import JobSettings, new_name
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import load_cluster
from components.train.supervision.restart_policy import Again
from pipelines.arguments import pipeline_arguments
from pipelines.cloud_options import DEFAULT_CLUSTER, check_place, scheduled_as
from pipelines.compile import compile_specs
from pipelines.config import Config
from pipelines.vertex.bucket import RECORD, reached, read_json, write_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """A run, or what a schedule makes runs of."""

    run: str  # Its name, and that of its directory; of a schedule what its runs are made by.
    image: str  # That the steps and the training run in, by digest.
    job: Mapping[str, Any]  # Arguments of `aiplatform.PipelineJob`, all but the spec's path and the job's id.
    body: Mapping[str, Any]  # What the resource has beside what that makes of them.
    sources: Sequence[str] = ()  # `gs://` places of the data.
    resources: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)  # CPUs and memory by step.
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # `JobSettings` that are no default.
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
        write_json(f"{self.directory}/{RECORD}", dataclasses.asdict(self))

    @classmethod
    def load(cls, bucket: str, run: str) -> "Submission":
        """The run of that name, as it was submitted."""
        known = read_json(f"{bucket}/runs/{run}/{RECORD}")
        return cls(**{field.name: known[field.name] for field in dataclasses.fields(cls) if field.name in known})

    def attempt(self, order: Again) -> "Submission":
        """The same on the machines, and within the time, of an attempt."""
        values = {**self.values, "cluster": self.cluster.choices[order.choice].to_json()}
        return dataclasses.replace(self, job={**self.job, "parameter_values": values}, timeout_s=order.timeout_s)

    def request(self, job_id: str) -> dict[str, Any]:
        """The request that makes the run, as JSON: of `pipelineJobs.create`, and a schedule has it too. Nobody is asked."""
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
                made = aiplatform.PipelineJob(
                    **self.job, job_id=job_id, template_path=str(spec), credentials=AnonymousCredentials()
                )
            except (TypeError, ValueError) as error:
                raise UserError(f"the pipeline does not take these arguments: {error}") from None
        parent = f"projects/{self.job['project']}/locations/{self.job['location']}"
        body = {**made.to_dict(), **{key: value for key, value in self.body.items() if value}}
        return {"parent": parent, "pipelineJobId": job_id, "pipelineJob": body}


def prepare(args: Config, *, is_scheduled: bool = False) -> Submission:
    """Checks every key by itself and against the others, and asks nobody; a mistake is a UserError."""
    check_place(args)
    cluster = scheduled_as(load_cluster(args.cluster or DEFAULT_CLUSTER, as_list(args.trainer_flags)), args)
    trained_by = args.training_service_account or args.service_account
    settings = dataclasses.replace(JobSettings.of(args), training_service_account=trained_by)
    settings.check(cluster, args.location)
    for choice in cluster.choices:  # refuses pools that cannot run there
        plan_vertex(choice, args.image, [], settings=settings)
    if args.serving_image:
        serving.check("--serving-image", args.serving_image)
    sources = as_list(args.source)
    if args.dataset != "bigquery":
        sources = [reached(source) for source in sources]
    elif not args.export_dir:
        args = args.model_copy(update={"export_dir": f"{args.bucket}/exports"})
    arguments = pipeline_arguments(args, cluster, sources)
    run = new_name()
    root = f"{args.bucket}/runs"
    place = {"project": args.project, "location": args.location}
    return Submission(
        run=run,
        image=args.image,
        sources=() if args.dataset == "bigquery" else sources,
        resources=dict(map(_step_resources, as_list(args.step_resources))),
        scheduled=is_scheduled,
        max_machine_hours=args.max_machine_hours,
        settings={f.name: v for f in dataclasses.fields(settings) if (v := getattr(settings, f.name)) != f.default},
        job={
            "display_name": run,
            "pipeline_root": root,
            "parameter_values": {
                **arguments,
                "run_id": run,
                "job_dir": root if is_scheduled else f"{root}/{run}/job",
                "registry": f"vertex://{args.project}/{args.location}",
                "serving_image": args.serving_image,
                **place,
            },
            "encryption_spec_key_name": settings.encryption_key,
            "labels": settings.all_labels("" if is_scheduled else run),
            **place,
        },
        body={
            "serviceAccount": args.service_account,
            "network": settings.network,
            "reservedIpRanges": as_list(settings.reserved_ip_ranges),
            "pscInterfaceConfig": settings.network_attachment and {"networkAttachment": settings.network_attachment},
        },
    )


def _step_resources(text: str) -> tuple[str, tuple[str, str]]:
    """Returns step, CPUs and memory of `convert=8:32G`."""
    step, _, machine = text.partition("=")
    cpus, _, memory = machine.partition(":")
    return step, (cpus, memory)
