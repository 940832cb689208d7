"""Endpoints: a version that is deployed is a process by its container's own arguments, and gets its share of the requests."""

import itertools
import json
import re
import subprocess

import requests
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tests.cloud.collection import Resources, Route, check_labels, done, now
from tests.cloud.front import Request
from tests.cloud.models import Models
from tests.servers import start_server

_MOST_BYTES = 1_500_000  # Of a request for predictions.


class Endpoints(Resources):
    """All endpoints of the project; `folders` are those of this machine that stand for the starts of `gs://` paths."""

    def __init__(self, route: Route, models: Models) -> None:
        super().__init__(route, v1.Endpoint)
        self.folders: dict[str, str] = {}
        self._models, self._turns = models, itertools.count()
        self._servers: dict[
            str, tuple[subprocess.Popen, str]
        ] = {}  # By id of what is deployed, with its URL.
        route("PATCH", f"{self._path}/{{id}}", self.update)
        route("DELETE", f"{self._path}/{{id}}", self.delete)
        for method in (self.deploy_model, self.undeploy_model, self.predict):
            verb = re.sub("_(.)", lambda match: match[1].upper(), method.__name__)
            route("POST", f"{self._path}/{{id}}:{verb}", method)

    def close(self) -> None:
        """Ends all servers."""
        for process, _ in self._servers.values():
            process.terminate()
        for process, _ in self._servers.values():
            process.wait()

    def create(self, request: Request, parent: str) -> operations_pb2.Operation:
        endpoint = v1.Endpoint.from_json(request.body, ignore_unknown_fields=False)
        if not 0 < len(endpoint.display_name) <= 128:
            raise exceptions.InvalidArgument("display_name is required, of at most 128 characters")
        check_labels(endpoint.labels)
        endpoint.name, endpoint.create_time = f"{parent}/endpoints/{next(self._ids)}", now()
        self.items[endpoint.name] = endpoint
        return done(parent, endpoint)

    def update(self, request: Request, parent: str, id: str) -> v1.Endpoint:
        """Changes the traffic, which is all that a client here changes."""
        endpoint = self.get(request, parent, id)
        asked = v1.Endpoint.from_json(request.body, ignore_unknown_fields=False)
        if request.query.get("updateMask") not in ("trafficSplit", "traffic_split"):
            raise exceptions.InvalidArgument(f"update_mask {request.query.get('updateMask')!r}")
        self._check_split(endpoint.deployed_models, asked.traffic_split)
        endpoint.traffic_split = asked.traffic_split
        return endpoint

    def delete(self, request: Request, parent: str, id: str) -> operations_pb2.Operation:
        endpoint = self.get(request, parent, id)
        if endpoint.deployed_models:
            raise exceptions.FailedPrecondition(f"{endpoint.name} has deployed models")
        del self.items[endpoint.name]
        return done(parent, empty_pb2.Empty())

    def deploy_model(self, request: Request, parent: str, id: str) -> operations_pb2.Operation:
        endpoint = self.get(request, parent, id)
        asked = v1.DeployModelRequest.from_json(request.body, ignore_unknown_fields=False)
        deployed, resources = asked.deployed_model, asked.deployed_model.dedicated_resources
        check_machine(resources.machine_spec)
        if (
            not 1
            <= resources.min_replica_count
            <= (resources.max_replica_count or resources.min_replica_count)
        ):
            raise exceptions.InvalidArgument(
                "min_replica_count must be from 1 to max_replica_count"
            )
        name, _, version = deployed.model.partition("@")
        model = self._models.find(name, version or "default")
        deployed.id, deployed.create_time, deployed.model_version_id = (
            str(next(self._ids)),
            now(),
            model.version_id,
        )
        split = {
            deployed.id if key == "0" else key: share for key, share in asked.traffic_split.items()
        }
        self._check_split([*endpoint.deployed_models, deployed], split)
        self._servers[deployed.id] = self.start(model)
        endpoint.deployed_models.append(deployed)
        if split:
            endpoint.traffic_split = split
        return done(parent, v1.DeployModelResponse(deployed_model=deployed))

    def undeploy_model(self, request: Request, parent: str, id: str) -> operations_pb2.Operation:
        endpoint = self.get(request, parent, id)
        asked = v1.UndeployModelRequest.from_json(request.body, ignore_unknown_fields=False)
        others = [each for each in endpoint.deployed_models if each.id != asked.deployed_model_id]
        if len(others) == len(endpoint.deployed_models):
            raise exceptions.NotFound(f"deployed model {asked.deployed_model_id}")
        split = asked.traffic_split or endpoint.traffic_split
        if others and split.get(asked.deployed_model_id):
            raise exceptions.FailedPrecondition(
                f"deployed model {asked.deployed_model_id} has traffic"
            )
        split = {
            key: share for key, share in split.items() if others and key != asked.deployed_model_id
        }
        self._check_split(others, split)
        endpoint.deployed_models, endpoint.traffic_split = others, split
        process, _ = self._servers.pop(asked.deployed_model_id)
        process.terminate()
        process.wait()
        return done(parent, v1.UndeployModelResponse())

    def predict(self, request: Request, parent: str, id: str) -> v1.PredictResponse:
        """Asks the next server: of a hundred requests each gets as many as its share says."""
        endpoint = self.get(request, parent, id)
        if len(request.body) > _MOST_BYTES:
            raise exceptions.InvalidArgument("The request size exceeds the limit of 1.5 MB")
        turns = [
            each
            for each in endpoint.deployed_models
            for _ in range(endpoint.traffic_split.get(each.id, 0))
        ]
        if not turns:
            raise exceptions.FailedPrecondition(f"{endpoint.name} has no model that gets traffic")
        deployed = turns[37 * next(self._turns) % len(turns)]
        _, url = self._servers[deployed.id]
        answered = requests.post(url, json=json.loads(request.body), timeout=60)
        if not answered.ok:
            raise exceptions.InvalidArgument(answered.text)
        return v1.PredictResponse.from_json(
            json.dumps(
                {
                    "predictions": answered.json()["predictions"],
                    "deployedModelId": deployed.id,
                    "model": deployed.model,
                    "modelVersionId": deployed.model_version_id,
                }
            )
        )

    def local(self, uri: str) -> str:
        """Returns the path on this machine that a URI of a bucket stands for."""
        for start, folder in self.folders.items():
            uri = uri.replace(start, folder)
        return uri

    def _check_split(self, deployed: list[v1.DeployedModel], split: dict[str, int]) -> None:
        if unknown := split.keys() - {each.id for each in deployed}:
            raise exceptions.InvalidArgument(
                f"traffic_split has {sorted(unknown)}, which are not deployed"
            )
        if split and (sum(split.values()) != 100 or min(split.values()) < 0):
            raise exceptions.InvalidArgument(
                f"traffic_split adds up to {sum(split.values())}, not 100"
            )

    def start(self, model: v1.Model) -> tuple[subprocess.Popen, str]:
        """Starts a container's process; returns it, once its health route answers, with the URL of its predictions."""
        spec, place = model.container_spec, self.local(model.artifact_uri)
        process, url = start_server(
            spec.args, spec.health_route, subprocess.DEVNULL, AIP_STORAGE_URI=place
        )
        if process.poll() is not None:
            raise exceptions.FailedPrecondition(
                "Model server exited unexpectedly or never became ready"
            )
        return process, f"{url}{spec.predict_route}"


def check_machine(machine: v1.MachineSpec) -> None:
    """Refuses what is no type of machine."""
    if not re.fullmatch(r"[a-z]\d[a-z]?-[a-z]+-\d+", machine.machine_type):
        raise exceptions.InvalidArgument(f"machine_type {machine.machine_type!r} is not supported")
