"""ML Metadata, after `metadata_service.proto`: which execution of a step made which artifact, by which the cache goes."""

from google.cloud import aiplatform_v1 as v1
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tests.cloud.collection import Route, done, page
from tests.cloud.front import Request


class Lineage:
    """`made` has by URI of an artifact the id of the execution that made it."""

    def __init__(self, route: Route) -> None:
        self.made: dict[str, str] = {}
        route("GET", "{parent}/metadataStores/default/artifacts", self.artifacts)
        route("GET", "{parent}/metadataStores/default/artifacts/{id}:queryArtifactLineageSubgraph", self.around)
        route("DELETE", "{parent}/metadataStores/default/executions/{id}", self.forget)

    def artifacts(self, request: Request, parent: str) -> v1.ListArtifactsResponse:
        named = enumerate(self.made)
        all_of_them = [v1.Artifact(name=f"{parent}/metadataStores/default/artifacts/{i}", uri=uri) for i, uri in named]
        return page(v1.ListArtifactsResponse, "artifacts", all_of_them, request)

    def around(self, request: Request, parent: str, id: str) -> v1.LineageSubgraph:
        """The execution that made it, and one that read it."""
        artifact, by = f"{parent}/metadataStores/default/artifacts/{id}", list(self.made.values())[int(id)]
        ends = {by: v1.Event.Type.OUTPUT, "reader": v1.Event.Type.INPUT}
        name = f"{parent}/metadataStores/default/executions/"
        return v1.LineageSubgraph(
            events=[v1.Event(artifact=artifact, execution=name + end, type_=how) for end, how in ends.items()]
        )

    def forget(self, request: Request, parent: str, id: str) -> operations_pb2.Operation:
        self.made = {uri: by for uri, by in self.made.items() if by != id}
        return done(parent, empty_pb2.Empty())
