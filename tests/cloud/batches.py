"""Batch prediction: a job starts the container of its model, and asks it about JSON lines of a bucket."""

import json
import pathlib
import re
import threading

import requests
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from google.rpc import code_pb2

from tests.cloud.collection import Collection, Route, check_labels
from tests.cloud.endpoints import Endpoints, check_machine
from tests.cloud.front import Request
from tests.cloud.models import Models

_BATCH = 64  # Instances of a request, where the job does not say.
_State = v1.JobState


class Batches(Collection):
    """All batch prediction jobs of the project, which run."""

    def __init__(self, route: Route, models: Models, endpoints: Endpoints) -> None:
        super().__init__(route, v1.BatchPredictionJob, "JOB_STATE_PENDING")
        self._models, self._endpoints = models, endpoints

    def create(self, request: Request, parent: str) -> v1.BatchPredictionJob:
        """Starts a job; only JSON lines of buckets are read."""
        job = v1.BatchPredictionJob.from_json(request.body, ignore_unknown_fields=False)
        source, target = job.input_config, job.output_config
        check_labels(job.labels)
        for field, is_right in {
            "display_name": 0 < len(job.display_name) <= 128,
            "input_config.instances_format": source.instances_format == "jsonl",
            "input_config.gcs_source.uris": all(
                uri.startswith("gs://") for uri in source.gcs_source.uris or [""]
            ),
            "output_config.predictions_format": target.predictions_format == "jsonl",
            "output_config.gcs_destination": target.gcs_destination.output_uri_prefix.startswith(
                "gs://"
            ),
            "dedicated_resources.starting_replica_count": job.dedicated_resources.starting_replica_count
            >= 1,
        }.items():
            if not is_right:
                raise exceptions.InvalidArgument(f"{field} is missing or invalid")
        check_machine(job.dedicated_resources.machine_spec)
        name, _, version = job.model.partition("@")
        model = self._models.find(name, version or "default")
        created = super().create(request, parent)
        created.model_version_id = model.version_id
        threading.Thread(target=self._run, args=(created, model), daemon=True).start()
        return created

    def _run(self, job: v1.BatchPredictionJob, model: v1.Model) -> None:
        """Asks a server about all instances; those of a request that it refuses are errors."""
        job.state = _State.JOB_STATE_RUNNING
        process = None
        try:
            process, url = self._endpoints.start(model)
            instances = [
                json.loads(line)
                for path in self._files(job)
                for line in path.read_text().splitlines()
            ]
            size = job.manual_batch_tuning_parameters.batch_size or _BATCH
            answers, errors = [], []
            for start in range(0, len(instances), size):
                batch = instances[start : start + size]
                response = requests.post(url, json={"instances": batch}, timeout=60)
                if response.ok:
                    rows = zip(batch, response.json()["predictions"], strict=True)
                    answers += [{"instance": instance, "prediction": row} for instance, row in rows]
                else:
                    error = {"code": code_pb2.INVALID_ARGUMENT, "message": response.text}
                    errors += [{"instance": instance, "error": error} for instance in batch]
            self._write(job, model, answers, errors)
            if not answers:
                raise ValueError("all instances failed")
            if job.state == _State.JOB_STATE_RUNNING:
                job.state = _State.JOB_STATE_SUCCEEDED
        except Exception as error:  # Whatever it is, the job has failed.
            job.error.code, job.error.message = code_pb2.FAILED_PRECONDITION, str(error)
            job.state = _State.JOB_STATE_FAILED
        finally:
            if process:
                process.terminate()
                process.wait()

    def _files(self, job: v1.BatchPredictionJob) -> list[pathlib.Path]:
        files = []
        for uri in job.input_config.gcs_source.uris:
            pattern = pathlib.Path(self._endpoints.local(uri))
            inside = sorted(pattern.parent.glob(pattern.name))
            if not inside:
                raise FileNotFoundError(f"no file matches {uri}")
            files += inside
        return files

    def _write(
        self, job: v1.BatchPredictionJob, model: v1.Model, answers: list[dict], errors: list[dict]
    ) -> None:
        prefix = job.output_config.gcs_destination.output_uri_prefix.rstrip("/")
        time = re.sub(r"\W", "_", job.create_time.isoformat())
        directory = f"{prefix}/prediction-{model.display_name}-{time}"
        folder = pathlib.Path(self._endpoints.local(directory))
        folder.mkdir(parents=True)
        for name, rows in {
            "prediction.results": answers,
            "prediction.errors_stats": errors,
        }.items():
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{name}-00000-of-00001").write_text(text)
        job.output_info = {"gcs_output_directory": directory}
        job.completion_stats = {"successful_count": len(answers), "failed_count": len(errors)}
