"""Endpoints and the models on them, after `endpoint_service.proto`: one that holds a model cannot be deleted."""

import json

from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tests.cloud.collection import Route, page
from tests.cloud.front import Request


def done(parent: str, result: object) -> operations_pb2.Operation:
    """An operation that has ended with a message of the API."""
    operation = operations_pb2.Operation(name=f"{parent}/operations/1", done=True)
    operation.response.Pack(getattr(result, "_pb", result))
    return operation


class Endpoints:
    """All endpoints; `items` has them by name, and a test may change them."""

    def __init__(self, route: Route) -> None:
        self.items: dict[str, v1.Endpoint] = {}
        route("GET", "{parent}/endpoints", self.listed)
        route("GET", "{parent}/endpoints/{id}", self.get)
        route("POST", "{parent}/endpoints/{id}:undeployModel", self.undeploy)
        route("DELETE", "{parent}/endpoints/{id}", self.delete)

    def listed(self, request: Request, parent: str) -> v1.ListEndpointsResponse:
        return page(v1.ListEndpointsResponse, "endpoints", self.items.values(), request)

    def get(self, request: Request, parent: str, id: str) -> v1.Endpoint:
        if (name := f"{parent}/endpoints/{id}") not in self.items:
            raise exceptions.NotFound(name)
        return self.items[name]

    def undeploy(self, request: Request, parent: str, id: str) -> operations_pb2.Operation:
        endpoint, gone = self.get(request, parent, id), json.loads(request.body)["deployedModelId"]
        endpoint.deployed_models = [model for model in endpoint.deployed_models if model.id != gone]
        return done(parent, v1.UndeployModelResponse())

    def delete(self, request: Request, parent: str, id: str) -> operations_pb2.Operation:
        endpoint = self.get(request, parent, id)
        if endpoint.deployed_models:
            raise exceptions.FailedPrecondition(f"{endpoint.name} has deployed models")
        del self.items[endpoint.name]
        return done(parent, empty_pb2.Empty())
