"""Models, their versions and the aliases of these.

The first version of a model gets the alias `default`, later ones only when they ask for it; an
alias points at one version at a time. A list of models holds the default version of each.
"""

import collections
import itertools

from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from google.protobuf import empty_pb2

from tests.cloud.collection import now, operation, page, parsed, resource
from tests.cloud.rules import check


class Models:
    """All models of the project."""

    def __init__(self, route):
        self.versions = {}  # By name of the model, oldest first.
        self._ids = itertools.count(1)
        self._numbers = collections.defaultdict(lambda: itertools.count(1))
        route("POST", "{parent}/models:upload", self.upload)
        route("GET", "{parent}/models", self.list_models)
        route("GET", "{parent}/models/{id}(?:@{id})?", self.get)
        route("GET", "{parent}/models/{id}:listVersions", self.list_versions)
        route("POST", "{parent}/models/{id}@{id}:mergeVersionAliases", self.merge_aliases)
        route("DELETE", "{parent}/models/{id}@{id}:deleteVersion", self.delete_version)
        route("DELETE", "{parent}/models/{id}", self.delete)

    def upload(self, request):
        """Adds a model, by `modelId` if that is given, or a version of `parentModel`."""
        sent = v1.UploadModelRequest.from_json(request.body, ignore_unknown_fields=False)
        model = sent.model
        model.name = sent.parent_model or f"{resource(request)}/{sent.model_id or next(self._ids)}"
        check(model, request.path)
        if sent.parent_model:
            versions = self._of(model.name)
        elif model.name in self.versions:
            raise exceptions.AlreadyExists(model.name)
        else:
            versions = self.versions[model.name] = []
        aliases = [*model.version_aliases, *([] if versions else ["default"])]
        model.version_id, model.version_aliases = str(next(self._numbers[model.name])), []
        model.create_time = versions[0].create_time if versions else now()
        if model.container_spec.predict_route:
            model.supported_deployment_resources_types = ["DEDICATED_RESOURCES"]
        versions.append(model)
        self._move(model, aliases)
        answer = v1.UploadModelResponse(model=model.name, model_version_id=model.version_id)
        return operation(model.name, answer)

    def list_models(self, request):
        """The default version of every model, in the order of their making."""
        models = [self.find(name) for name in self.versions]
        return page(v1.ListModelsResponse, "models", models, request)

    def get(self, request):
        """A version by number or alias; without either the default one."""
        return self.find(resource(request))

    def list_versions(self, request):
        """All versions of a model; their names end with `@VERSION`."""
        versions = [
            v1.Model(m, name=f"{m.name}@{m.version_id}") for m in self._of(resource(request))
        ]
        return page(v1.ListModelVersionsResponse, "models", versions, request)

    def merge_aliases(self, request):
        """Adds aliases to a version, taking them from others; `-alias` removes one."""
        model = self.get(request)
        sent = parsed(v1.MergeVersionAliasesRequest, request, name=model.name)
        self._move(model, sent.version_aliases)
        return model

    def delete_version(self, request):
        """Deletes a version."""
        model = self.get(request)
        self._of(model.name).remove(model)
        return operation(model.name, empty_pb2.Empty())

    def delete(self, request):
        """Deletes a model with all its versions."""
        model = self.get(request)
        del self.versions[model.name]
        return operation(model.name, empty_pb2.Empty())

    def find(self, name):
        """A version by `MODEL@VERSION`, number or alias; of `MODEL` alone the default one."""
        name, _, version = name.partition("@")
        for model in self._of(name):
            if (version or "default") in (model.version_id, *model.version_aliases):
                return model
        raise exceptions.NotFound(f"{name}@{id}")

    def _of(self, name):
        if name not in self.versions:
            raise exceptions.NotFound(name)
        return self.versions[name]

    def _move(self, to, aliases):
        for alias in aliases:
            plain = alias.removeprefix("-")
            for model in [to] if alias != plain else self._of(to.name):
                model.version_aliases = [other for other in model.version_aliases if other != plain]
            if alias == plain:
                to.version_aliases.append(plain)
