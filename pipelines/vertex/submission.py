"""A run for Vertex AI with all that describes it.

It can be printed, checked, sent, saved in the bucket, and sent again.
"""

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

_BUCKET = "gs://[a-z0-9][a-z0-9._-]+/"  # Regular expression for how paths in a bucket begin.
_RECORD = "{}/runs/{}/run.json"  # Path of a submission, from its bucket and its run.
TIMEOUT_S = 7 * 86_400  # Time limit of jobs that have none of their own, as Vertex AI's default.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """A run of the pipeline on Vertex AI.

    Attributes:
      run: Name of the run and of its directory.
      bucket: `gs://BUCKET`.
      image: Image of the steps and of the training, by digest.
      values: Arguments of the pipeline by name.
      settings: Settings of the training job.
      service_account: Account that the run acts as; None for the project's default.
      resources: CPUs and memory by step.
      max_machine_hours: Limit on all attempts of the training together; None for no limit.
    """

    run: str
    bucket: str
    image: str
    values: Mapping[str, Any]
    settings: JobSettings
    service_account: str | None = None
    resources: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    max_machine_hours: float | None = None

    @functools.cached_property
    def cluster(self) -> Cluster:
        """Cluster that the training runs on, with all its choices of machines."""
        return Cluster.from_json(self.values["cluster"])

    @property
    def bounds(self) -> Bounds:
        """Limits on all attempts of the training together; 7 days if the cluster has no timeout."""
        return Bounds(
            cluster=self.cluster,
            timeout_s=self.cluster.scheduling.timeout_s or TIMEOUT_S,
            machine_hours=self.max_machine_hours,
        )

    @property
    def record(self) -> str:
        """Path of the file in the bucket that `save` writes."""
        return _RECORD.format(self.bucket, self.run)

    def save(self) -> None:
        """Writes the submission to `runs/<run>/run.json` in the bucket, in place of an earlier one.

        Raises:
          UserError: If the bucket refuses it.
          ConnectionError: If the bucket does not answer.
        """
        write_text(self.record, json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, bucket: str, run: str) -> Self:
        """Reads a submission that was saved.

        Args:
          bucket: `gs://BUCKET`.
          run: Name of the run.

        Raises:
          UserError: If there is no such run, its record is damaged, or the bucket refuses to read
            it.
          ConnectionError: If the bucket does not answer.
        """
        with parsed_json(_RECORD.format(bucket, run)) as fields:
            if fields is None:
                raise UserError(
                    f"--resume {run}: no such run in {bucket}; submit.py --list shows them"
                )
            return TypeAdapter(cls).validate_python(fields)

    def request(self, job_id: str, order: Again) -> dict[str, Any]:
        """Returns the request `pipelineJobs.create` for an attempt. Sends nothing.

        Args:
          job_id: Id of the pipeline job.
          order: Machines and time limit of the attempt. The limit must not be None.

        Returns:
          `parent`, `pipelineJobId` and `pipelineJob` of the request.
        """
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
    """Returns a new submission with a new name. Checks all keys, and sends no request.

    If only `service_account` is given, the training acts as that account too. Notes on the cluster
    file are printed on standard error.

    Raises:
      UserError: If a key is wrong, or if keys do not fit each other.
    """
    check_place(config)
    cluster = cluster_of(config)
    trained_by = config.training_service_account or config.service_account
    settings = dataclasses.replace(JobSettings.of(config), training_service_account=trained_by)
    settings.check(config.location)
    plan_vertex(cluster, config.image, [])  # Raises an error for pools that cannot run there.
    sources = [require_bucket(source) for source in as_list(config.source)]
    predict = as_list(config.predict)
    if others := [path for path in predict if not re.fullmatch(rf"{_BUCKET}.+\.jsonl", path)]:
        raise UserError(
            f"predict: {others[0]}: Vertex AI's batch prediction reads JSON lines; give "
            "gs://BUCKET/NAME.jsonl"
        )
    if config.job_dir and not re.match(_BUCKET, config.job_dir):
        raise UserError(f"job_dir: {config.job_dir} is in no bucket; give gs://BUCKET/DIR")
    run = new_name()
    return Submission(
        run=run,
        bucket=config.bucket,
        image=config.image,
        values={
            **pipeline_arguments(config, cluster, sources),
            "run_id": run,
            "job_dir": config.job_dir or f"{config.bucket}/runs/{run}/job",
            "dataset_dir": f"{config.bucket}/datasets",
            "registry": f"vertex://{config.project}/{config.location}",
            "project": config.project,
            "location": config.location,
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
    """Returns a path in a bucket, `gs://BUCKET` or `gs://BUCKET/NAME`, without a slash at its end.

    Raises:
      UserError: If it is another path, since steps on Vertex AI can read only buckets.
    """
    if not re.match("gs://[^/]", source):
        raise UserError(
            f"--source {source}: steps on Vertex AI read buckets; upload it and give "
            "gs://BUCKET/DIR"
        )
    return source.rstrip("/")
