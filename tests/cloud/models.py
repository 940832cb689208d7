"""Models, their versions and the aliases of these.

The first version of a model gets the alias `default`, later ones only when they ask for it; an
alias points at one version at a time. A list of models holds the default version of each.
"""

import collections
import itertools
import json
import re

from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tests.cloud.collection import Route, check_labels, done, now, page
from tests.cloud.front import Request

_ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]")
_IMAGE = re.compile(  # in Artifact Registry or Container Registry
    r"([a-z0-9-]+-docker\.pkg\.dev/[^/@:]+|([a-z]+\.)?gcr\.io)(/[a-z0-9._-]+){2,}(:[\w.-]{1,128})?(@sha256:[0-9a-f]{64})?"
)


class Models:
    """All models of the project."""

    def __init__(self, route: Route) -> None:
        self.versions: dict[str, list[v1.Model]] = {}  # By name of the model, oldest first.
        self._ids, self._numbers = (
            itertools.count(1),
            collections.defaultdict(lambda: itertools.count(1)),
        )
        route("POST", "{parent}/models:upload", self.upload)
        route("GET", "{parent}/models", self.list_models)
        route("GET", "{parent}/models/{id}(?:@{version})?", self.get)
        route("GET", "{parent}/models/{id}:listVersions", self.list_versions)
        route("POST", "{parent}/models/{id}@{version}:mergeVersionAliases", self.merge_aliases)
        route("DELETE", "{parent}/models/{id}@{version}:deleteVersion", self.delete_version)

    def upload(self, request: Request, parent: str) -> operations_pb2.Operation:
        """Adds a model, by `modelId` if that is given, or a version of `parentModel`."""
        asked = v1.UploadModelRequest.from_json(request.body, ignore_unknown_fields=False)
        model = asked.model
        check_labels(model.labels)
        if model.artifact_uri and not model.container_spec.image_uri:
            raise exceptions.InvalidArgument(
                "container_spec is required of a model with an artifact_uri"
            )
        if not _IMAGE.fullmatch(model.container_spec.image_uri):
            raise exceptions.InvalidArgument(
                f"image_uri {model.container_spec.image_uri!r}: not in Artifact Registry"
            )
        model.name = asked.parent_model or f"{parent}/models/{asked.model_id or next(self._ids)}"
        if not asked.parent_model and model.name in self.versions:
            raise exceptions.AlreadyExists(model.name)
        versions = (
            self._of(model.name) if asked.parent_model else self.versions.setdefault(model.name, [])
        )
        aliases = [*model.version_aliases, *([] if versions else ["default"])]
        model.version_id, model.version_aliases = str(next(self._numbers[model.name])), []
        model.create_time = versions[0].create_time if versions else now()
        if model.container_spec.predict_route:
            model.supported_deployment_resources_types = ["DEDICATED_RESOURCES"]
        versions.append(model)
        self._move(versions, model, aliases)
        return done(
            parent, v1.UploadModelResponse(model=model.name, model_version_id=model.version_id)
        )

    def list_models(self, request: Request, parent: str) -> v1.ListModelsResponse:
        """The default version of every model, in the order of their making."""
        return page(
            v1.ListModelsResponse,
            "models",
            [self.find(name, "default") for name in self.versions],
            request,
        )

    def get(self, request: Request, parent: str, id: str, version: str | None) -> v1.Model:
        """A version by number or alias; without either the default one."""
        return self.find(f"{parent}/models/{id}", version or "default")

    def list_versions(self, request: Request, parent: str, id: str) -> v1.ListModelVersionsResponse:
        """All versions of a model; their names end with `@VERSION`."""
        versions = [
            v1.Model(m, name=f"{m.name}@{m.version_id}") for m in self._of(f"{parent}/models/{id}")
        ]
        return page(v1.ListModelVersionsResponse, "models", versions, request)

    def merge_aliases(self, request: Request, parent: str, id: str, version: str) -> v1.Model:
        """Adds aliases to a version, taking them from others; `-alias` removes one."""
        name = f"{parent}/models/{id}"
        model = self.find(name, version)
        self._move(self._of(name), model, json.loads(request.body)["versionAliases"])
        return model

    def delete_version(
        self, request: Request, parent: str, id: str, version: str
    ) -> operations_pb2.Operation:
        """Deletes a version."""
        self._of(name := f"{parent}/models/{id}").remove(self.find(name, version))
        return done(parent, empty_pb2.Empty())

    def _of(self, name: str) -> list[v1.Model]:
        if name not in self.versions:
            raise exceptions.NotFound(name)
        return self.versions[name]

    def find(self, name: str, version: str) -> v1.Model:
        """A version by number or alias."""
        for model in self._of(name):
            if version == model.version_id or version in model.version_aliases:
                return model
        raise exceptions.NotFound(f"{name}@{version}")

    def _move(self, versions: list[v1.Model], to: v1.Model, aliases: list[str]) -> None:
        for alias in aliases:
            plain = alias.removeprefix("-")
            if not _ALIAS.fullmatch(plain) or alias == "-default":
                raise exceptions.InvalidArgument(f"alias {alias!r}")
            for model in [to] if alias != plain else versions:
                model.version_aliases = [other for other in model.version_aliases if other != plain]
            if alias == plain:
                to.version_aliases.append(plain)
