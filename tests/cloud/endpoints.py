"""Models that answer: a version of an endpoint or batch prediction is a process.

A deployed one gets its share of the requests; a job asks about JSON lines of a bucket.
"""

import itertools
import json
import pathlib
import re
import subprocess
import threading

import requests
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from google.rpc import code_pb2

from tests.cloud.collection import Collection, now, operation, parsed, require
from tests.servers import start_server

_MOST_BYTES = 1_500_000  # Of a request for predictions.
_BATCH = 64  # Instances of a request.
_State = v1.JobState


class Endpoints(Collection):
    """All endpoints of the project.

    Attributes:
      folders: Folders of this machine that stand for the starts of `gs://` paths.
    """

    def __init__(self, route, models):
        super().__init__(route, v1.Endpoint)
        self.folders = {}
        self._models, self._turns = models, itertools.count()
        # By id of what is deployed, with its URL.
        self._servers = {}
        route("PATCH", f"{self._path}/{{id}}", self.update)
        route("POST", f"{self._path}/{{id}}:deployModel", self.deploy)
        route("POST", f"{self._path}/{{id}}:undeployModel", self.undeploy)
        route("POST", f"{self._path}/{{id}}:predict", self.predict)

    def close(self):
        """Ends all servers."""
        for id in [*self._servers]:
            self._stop(id)

    def create(self, request):
        endpoint = super().create(request)
        return operation(endpoint.name, endpoint)

    def update(self, request):
        """Changes the traffic, which is all that a client here changes."""
        endpoint, mask = self.get(request), request.query.get("updateMask")
        sent = parsed(v1.Endpoint, request, display_name=endpoint.display_name)
        require(mask in ("trafficSplit", "traffic_split"), f"update_mask {mask!r}")
        _split(endpoint, endpoint.deployed_models, sent.traffic_split)
        return endpoint

    def delete(self, request):
        endpoint = self.get(request)
        if endpoint.deployed_models:
            raise exceptions.FailedPrecondition(f"{endpoint.name} has deployed models")
        return super().delete(request)

    def deploy(self, request):
        endpoint = self.get(request)
        sent = parsed(v1.DeployModelRequest, request, endpoint=endpoint.name)
        deployed = sent.deployed_model
        model = self._models.find(deployed.model)
        deployed.id, deployed.create_time = str(next(self._ids)), now()
        deployed.model_version_id = model.version_id
        split = {deployed.id if key == "0" else key: n for key, n in sent.traffic_split.items()}
        self._servers[deployed.id] = self.start(model)
        _split(endpoint, [*endpoint.deployed_models, deployed], split or endpoint.traffic_split)
        return operation(endpoint.name, v1.DeployModelResponse(deployed_model=deployed))

    def undeploy(self, request):
        endpoint = self.get(request)
        sent = parsed(v1.UndeployModelRequest, request, endpoint=endpoint.name)
        gone = sent.deployed_model_id
        others = [each for each in endpoint.deployed_models if each.id != gone]
        if len(others) == len(endpoint.deployed_models):
            raise exceptions.NotFound(f"deployed model {gone}")
        split = dict(sent.traffic_split or endpoint.traffic_split)
        if split.pop(gone, 0) and others:
            raise exceptions.FailedPrecondition(f"deployed model {gone} has traffic")
        _split(endpoint, others, split if others else {})
        self._stop(gone)
        return operation(endpoint.name, v1.UndeployModelResponse())

    def predict(self, request):
        """Asks the next server: of a hundred requests each gets as many as its share says."""
        endpoint = self.get(request)
        require(len(request.body) <= _MOST_BYTES, "The request size exceeds the limit of 1.5 MB")
        shares = endpoint.traffic_split
        turns = [each for each in endpoint.deployed_models for _ in range(shares.get(each.id, 0))]
        if not turns:
            raise exceptions.FailedPrecondition(f"{endpoint.name} has no model that gets traffic")
        deployed = turns[37 * next(self._turns) % len(turns)]
        _, url = self._servers[deployed.id]
        answered = requests.post(url, json=json.loads(request.body), timeout=60)
        require(answered.ok, answered.text)
        facts = {
            "predictions": answered.json()["predictions"],
            "deployedModelId": deployed.id,
            "model": deployed.model,
            "modelVersionId": deployed.model_version_id,
        }
        return v1.PredictResponse.from_json(json.dumps(facts))

    def local(self, uri):
        """Returns the path on this machine that a URI of a bucket stands for."""
        for start, folder in self.folders.items():
            uri = uri.replace(start, folder)
        return uri

    def start(self, model):
        """Starts a container's process; returns it, once it is healthy, with its URL."""
        spec, place = model.container_spec, self.local(model.artifact_uri)
        process, url = start_server(
            spec.args, spec.health_route, subprocess.DEVNULL, AIP_STORAGE_URI=place
        )
        if process.poll() is not None:
            raise exceptions.FailedPrecondition("Model server exited unexpectedly")
        return process, f"{url}{spec.predict_route}"

    def _stop(self, id):
        process, _ = self._servers.pop(id)
        process.terminate()
        process.wait()


def _split(endpoint, deployed, split):
    """Sets what is deployed, and the traffic split, which may name nothing else."""
    unknown = split.keys() - {each.id for each in deployed}
    require(not unknown, f"traffic_split has {sorted(unknown)}, which are not deployed")
    endpoint.deployed_models, endpoint.traffic_split = list(deployed), dict(split)


class Batches(Collection):
    """All batch prediction jobs of the project, which run."""

    def __init__(self, route, models, endpoints):
        super().__init__(route, v1.BatchPredictionJob, "JOB_STATE_PENDING")
        self._models, self._endpoints = models, endpoints

    def create(self, request):
        """Starts a job; only JSON lines of buckets are read."""
        model = self._models.find(parsed(v1.BatchPredictionJob, request).model)
        created = super().create(request)
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
        """Asks a server about all instances; that refused requests leave the rest is a guess."""
        files = map(self._endpoints.local, job.input_config.gcs_source.uris)
        lines = "".join(pathlib.Path(file).read_text() for file in files).splitlines()
        instances = list(map(json.loads, lines))
        rows, refused = [], 0
        for start in range(0, len(instances), _BATCH):
            batch = instances[start : start + _BATCH]
            response = requests.post(url, json={"instances": batch}, timeout=60)
            predictions = response.json().get("predictions", [])
            for instance, prediction in zip(batch, predictions, strict=response.ok):
                rows.append(json.dumps({"instance": instance, "prediction": prediction}))
            refused += 0 if response.ok else len(batch)
        require(rows, response.text)
        prefix = job.output_config.gcs_destination.output_uri_prefix.rstrip("/")
        time = re.sub(r"\W", "_", job.create_time.isoformat())
        directory = f"{prefix}/prediction-{model.display_name}-{time}"
        folder = pathlib.Path(self._endpoints.local(directory))
        folder.mkdir(parents=True)
        (folder / "prediction.results-00000-of-00001").write_text("\n".join(rows))
        job.output_info = {"gcs_output_directory": directory}
        job.completion_stats = {"successful_count": len(rows), "failed_count": refused}
        if job.state == _State.JOB_STATE_RUNNING:
            job.state = f"JOB_STATE_{'PARTIALLY_' if refused else ''}SUCCEEDED"
