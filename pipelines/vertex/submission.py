"""A run for Vertex AI, described whole: what is shown, checked, sent, kept in the bucket, and sent again."""

import argparse
import dataclasses
import functools
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from common.errors import UserError, unknown
from components.register import serving
from components.train.backends.attempts import Again
from components.train.backends.job_settings import JobSettings, as_list, new_name
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from pipelines import training
from pipelines.arguments import pipeline_arguments, sources_seen
from pipelines.compile import compile_specs
from pipelines.vertex.bucket import RECORD, reached, read_json, write_json

# What people may give CPUs and memory: all steps of ours that run on a machine of their own.
STEPS = tuple(step.__name__ for step in training.STEPS if step is not training.train)
# Of each flag that is needed: its form, what it means, and an example.
NEEDED = {
    "project": (r"[a-z][a-z0-9-]{4,28}[a-z0-9]", "the id of a project", "my-project"),
    "location": (r"[a-z]+-[a-z]+\d+", "a region", "us-central1"),
    "bucket": (r"gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]", "a bucket", "gs://my-bucket"),
    "image": (
        serving.IMAGE,
        "the project's container image in Artifact Registry by digest (a tag can be moved)",
        f"us-docker.pkg.dev/my-project/training/tfrecord-training@sha256:{'0' * 64}",
    ),
}


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


def prepare(args: argparse.Namespace) -> Submission:
    """Checks every flag by itself and against the others, and asks nobody; what is wrong with one is a UserError."""
    check_place(args)
    cluster = scheduled_as(Cluster.load(args.cluster, args.trainer_flags), args)
    settings = JobSettings.of(args)
    trained_by = settings.training_service_account or args.service_account
    settings = dataclasses.replace(settings, training_service_account=trained_by)
    settings.check(cluster, args.location)
    for choice in cluster.choices:  # refuses pools that cannot run there
        plan_vertex(choice, args.image, [], settings=settings)
    if args.serving_image:
        serving.check("--serving-image", args.serving_image)
    if args.dataset == "bigquery":
        args.export_dir = args.export_dir or f"{args.bucket}/exports"
    arguments = pipeline_arguments(args, cluster, sources_seen(args, reached))
    run = new_name()
    root, scheduled = f"{args.bucket}/runs", bool(args.cron)
    place = {"project": args.project, "location": args.location}
    return Submission(
        run=run,
        image=args.image,
        sources=() if args.dataset == "bigquery" else args.source,
        resources=dict(_resources(args.step_resources)),
        scheduled=scheduled,
        max_machine_hours=args.max_machine_hours,
        settings={f.name: v for f in dataclasses.fields(settings) if (v := getattr(settings, f.name)) != f.default},
        job={
            "display_name": run,
            "pipeline_root": root,
            "parameter_values": {
                **arguments,
                "run_id": run,
                "job_dir": root if scheduled else f"{root}/{run}/job",
                "registry": f"vertex://{args.project}/{args.location}",
                "serving_image": args.serving_image,
                **place,
            },
            # None leaves each step what the spec says: only `convert` may come from the cache.
            "enable_caching": None if args.cache else False,
            "encryption_spec_key_name": settings.encryption_key,
            "labels": settings.all_labels("" if scheduled else run),
            **place,
        },
        body={
            "serviceAccount": args.service_account,
            "network": settings.network,
            "reservedIpRanges": as_list(settings.reserved_ip_ranges),
            "pscInterfaceConfig": settings.network_attachment and {"networkAttachment": settings.network_attachment},
        },
    )


def check_place(args: argparse.Namespace, flags: Iterable[str] = NEEDED) -> None:
    """Checks the flags that say where, and with what, something is to run: project, location, bucket and image."""
    for flag, (form, meaning, example) in ((flag, NEEDED[flag]) for flag in flags):
        if not re.fullmatch(form, getattr(args, flag) or ""):
            raise UserError(f"--{flag} {getattr(args, flag) or 'is missing'}: give {meaning}, such as {example}")


def scheduled_as(cluster: Cluster, args: argparse.Namespace) -> Cluster:
    """The cluster, with what the flags say of its scheduling."""
    flags = {"strategy": args.scheduling, "timeout": args.timeout, "max_restarts": args.max_restarts}
    content = cluster.model_dump(exclude_none=True)
    content["scheduling"] = {**content["scheduling"], **{k: v for k, v in flags.items() if v is not None}}
    return Cluster.read(content)


def _resources(given: Sequence[str]) -> Iterator[tuple[str, tuple[str, str]]]:
    for text in given:
        if not (match := re.fullmatch(r"(\w+)=([1-9]\d{0,2}):([1-9]\d{0,4})G", text)):
            raise UserError(f"--step-resources {text}: write STEP=CPUS:MEMORY, such as convert=8:32G")
        if match[1] not in STEPS:
            raise unknown("step", match[1], STEPS)
        yield match[1], (match[2], f"{match[3]}G")
