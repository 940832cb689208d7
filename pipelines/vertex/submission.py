"""A run for Vertex AI, described whole: what is shown, checked, sent, kept in the bucket, and sent again."""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from typing import Any, Self

from google.protobuf import json_format
from pydantic import TypeAdapter

from common.cli import as_list
from common.errors import UserError
from common.storage.files import parsed_json, write_text
from components.train.backends.attempts import Again, Bounds
from components.train.backends.job_settings import JobSettings, new_name
from components.train.backends.worker_pools import plan_vertex
from components.train.cluster.cluster_file import Cluster
from pipelines.arguments import pipeline_arguments
from pipelines.cloud_options import check_place, cluster_of
from pipelines.config import Config
from pipelines.training import build

_RECORD = "{}/runs/{}/run.json"  # of a bucket and a run: what was submitted
TIMEOUT_S = 7 * 86_400  # of a job without a time limit: Vertex AI's own


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """A run of the pipeline."""

    run: str  # Its name, and that of its directory.
    bucket: str  # `gs://BUCKET`.
    image: str  # That the steps and the training run in, by digest.
    values: Mapping[str, Any]  # Arguments of the pipeline by name.
    settings: JobSettings
    service_account: str | None = None
    resources: Mapping[str, tuple[str, str]] = dataclasses.field(
        default_factory=dict
    )  # CPUs and memory by step.
    max_machine_hours: float | None = None  # Of the training, all attempts together.

    @functools.cached_property
    def cluster(self) -> Cluster:
        """Machines that the training runs on."""
        return Cluster.from_json(self.values["cluster"])

    @property
    def bounds(self) -> Bounds:
        """Hours that all attempts of the training may take together."""
        return Bounds(
            cluster=self.cluster,
            timeout_s=self.cluster.scheduling.timeout_s or TIMEOUT_S,
            machine_hours=self.max_machine_hours,
        )

    @property
    def record(self) -> str:
        """Path of the file that keeps it."""
        return _RECORD.format(self.bucket, self.run)

    def save(self) -> None:
        """Keeps it in the run's directory."""
        write_text(self.record, json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, bucket: str, run: str) -> Self:
        """Returns the run of that name, as it was submitted."""
        with parsed_json(_RECORD.format(bucket, run)) as fields:
            if fields is None:
                raise UserError(
                    f"--resume {run}: no such run in {bucket}; submit.py --list shows them"
                )
            return TypeAdapter(cls).validate_python(fields)

    def request(self, job_id: str, order: Again) -> dict[str, Any]:
        """Returns the body of `pipelineJobs.create` for an attempt; asks nobody."""
        pipeline = build(
            "vertex",
            self.image,
            job={
                **self.settings.arguments(order.machines, self.run),
                "timeout": f"{order.timeout_s}s",
            },
            job_args=self.settings.as_flags(),
            resources=self.resources,
        )
        values = {**self.values, "cluster": order.machines.to_json()}
        key = self.settings.encryption_key
        body = {
            "displayName": self.run,
            "labels": self.settings.all_labels(self.run),
            "pipelineSpec": json_format.MessageToDict(pipeline.pipeline_spec),
            "runtimeConfig": {
                "gcsOutputDirectory": f"{self.bucket}/runs",
                "parameterValues": values,
            },
            "serviceAccount": self.service_account,
            "network": self.settings.network,
            "encryptionSpec": key and {"kmsKeyName": key},
        }
        parent = f"projects/{values['project']}/locations/{values['location']}"
        job = {name: value for name, value in body.items() if value}
        return {"parent": parent, "pipelineJobId": job_id, "pipelineJob": job}


def prepare(config: Config) -> Submission:
    """Checks every key by itself and against the others, and asks nobody; a mistake is a UserError."""
    check_place(config)
    cluster = cluster_of(config)
    trained_by = config.training_service_account or config.service_account
    settings = dataclasses.replace(JobSettings.of(config), training_service_account=trained_by)
    settings.check(config.location)
    plan_vertex(cluster, config.image, [])  # refuses pools that cannot run there
    sources = as_list(config.source)
    if config.dataset == "bigquery":
        config = config.model_copy(
            update={"export_dir": config.export_dir or f"{config.bucket}/exports"}
        )
    else:
        sources = [require_bucket(source) for source in sources]
    predict = as_list(config.predict)
    if others := [path for path in predict if not re.fullmatch(r"gs://[^/].*\.jsonl", path)]:
        raise UserError(
            f"predict: {others[0]}: Vertex AI's batch prediction reads JSON lines; give "
            "gs://BUCKET/NAME.jsonl"
        )
    run = new_name()
    return Submission(
        run=run,
        bucket=config.bucket,
        image=config.image,
        values={
            **pipeline_arguments(config, cluster, sources),
            "run_id": run,
            "job_dir": f"{config.bucket}/runs/{run}/job",
            "registry": f"vertex://{config.project}/{config.location}",
            "project": config.project,
            "location": config.location,
            "predict_source": predict,
            "should_predict": bool(predict),
        },
        settings=settings,
        service_account=config.service_account,
        resources={
            step: (cpus, memory)
            for step, cpus, memory in (
                re.split("[=:]", text) for text in as_list(config.step_resources)
            )
        },
        max_machine_hours=config.max_machine_hours,
    )


def require_bucket(source: str) -> str:
    """Returns `gs://BUCKET/DIR` without a slash at its end, or a UserError: no other place can be read on Vertex AI."""
    if not re.match("gs://[^/]", source):
        raise UserError(
            f"--source {source}: steps on Vertex AI read buckets; upload it and give "
            "gs://BUCKET/DIR"
        )
    return source.rstrip("/")
