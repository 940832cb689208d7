"""Batch prediction: a job asks its model's container about JSON lines of a bucket."""

import json
import pathlib
import re
import threading

import requests
from google.cloud import aiplatform_v1 as v1
from google.rpc import code_pb2

from tests.cloud.collection import Collection, parsed, require

_BATCH = 64  # Instances of a request.
_State = v1.JobState


class Batches(Collection):
    """All batch prediction jobs of the project, which run."""

    def __init__(self, route, models, endpoints):
        super().__init__(route, v1.BatchPredictionJob, "JOB_STATE_PENDING")
        self._models, self._endpoints = models, endpoints

    def create(self, request, parent):
        """Starts a job; only JSON lines of buckets are read."""
        model = self._models.find(parsed(v1.BatchPredictionJob, request, parent).model)
        created = super().create(request, parent)
        created.model_version_id = model.version_id
        threading.Thread(target=self._run, args=(created, model), daemon=True).start()
        return created

    def _run(self, job, model):
        job.state = _State.JOB_STATE_RUNNING
        try:
            process, url = self._endpoints.start(model)
            try:
                self._predict(job, model, url)
            finally:
                process.terminate()
                process.wait()
        except Exception as error:  # Whatever it is, the job has failed.
            job.error.code, job.error.message = code_pb2.FAILED_PRECONDITION, str(error)
            job.state = _State.JOB_STATE_FAILED

    def _predict(self, job, model, url):
        """Asks a server about all instances; that a refused request fails the job is a guess."""
        files = map(self._endpoints.local, job.input_config.gcs_source.uris)
        lines = "".join(pathlib.Path(file).read_text() for file in files).splitlines()
        instances = list(map(json.loads, lines))
        rows = []
        for start in range(0, len(instances), _BATCH):
            batch = instances[start : start + _BATCH]
            response = requests.post(url, json={"instances": batch}, timeout=60)
            require(response.ok, response.text)
            predictions = response.json()["predictions"]
            for instance, prediction in zip(batch, predictions, strict=True):
                rows.append(json.dumps({"instance": instance, "prediction": prediction}))
        prefix = job.output_config.gcs_destination.output_uri_prefix.rstrip("/")
        time = re.sub(r"\W", "_", job.create_time.isoformat())
        directory = f"{prefix}/prediction-{model.display_name}-{time}"
        folder = pathlib.Path(self._endpoints.local(directory))
        folder.mkdir(parents=True)
        (folder / "prediction.results-00000-of-00001").write_text("\n".join(rows))
        job.output_info = {"gcs_output_directory": directory}
        job.completion_stats = {"successful_count": len(rows)}
        if job.state == _State.JOB_STATE_RUNNING:
            job.state = _State.JOB_STATE_SUCCEEDED
