"""A model registry in the Vertex AI Model Registry.

Each name is one model on Vertex AI, whose id follows from the name; so two writers who are the
first at the same time make one model. Labels mark it as made by this program. A model that others
made is never touched, whatever its display name is. The alias `default`, which Vertex AI uses for
callers that name no version, follows the champion.

A version has a folder of its own in the bucket of the run that made it, and needs nothing else of
that run:

    gs://BUCKET/models/<model>/<random>/1/            the SavedModel, numbered as TensorFlow
                                                      Serving requires
    gs://BUCKET/models/<model>/<random>/version.json  what Vertex AI has no place for: the facts,
                                                      and `moves`, the aliases moved to it

`version.json` is written first, and marks the folder as made by this program. The folder is
complete before the version appears on Vertex AI, and is deleted after the version is. So a folder
without a version is what a process left that was killed. If a process is killed after it has moved
an alias, but before it has added that to `moves`, only the audit logs of the project have the move.
"""

import contextlib
import functools
import re
import secrets
from collections.abc import Mapping
from typing import Any

from google.api_core import exceptions, retry
from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1
from google.cloud.aiplatform.utils import ModelClientWithOverride

from common.errors import UserError
from common.google_cloud import MANAGED_BY, OURS, is_ours, refusals
from common.storage.files import copy_tree, delete_files, list_files
from components.register import serving
from components.register.registry import (
    CHAMPION,
    DELETE,
    PREVIOUS,
    Registry,
    Version,
    added,
    check_name,
    read_record,
    write_record,
)

FOLDER = "models"  # Folder of a bucket that has those of all versions.
_PLACE = re.compile(r"vertex://([a-z][a-z0-9:.-]+)/([a-z0-9-]+)")
_UPLOAD_S = 1800.0
# If two writers add the first version of a model at once, Vertex AI refuses one of them. That one
# tries again, and then adds its version to the model that the other has made. It also tries again
# if the service fails, so that a training of days is not lost with it.
_AGAIN = retry.Retry(
    retry.if_exception_type(exceptions.Conflict, exceptions.NotFound, exceptions.ServerError),
    initial=1.0,
    multiplier=1.0,
    timeout=30.0,
)


class VertexRegistry(Registry):
    """The models of a project in a location.

    Attributes:
      project: Id of the project.
      location: Region.

    Raises:
      UserError: If `place` is not `vertex://PROJECT/LOCATION`. From all methods, also if Vertex AI
        refuses a request.
      ConnectionError: From all methods, if Vertex AI does not answer.
    """

    def __init__(self, place: str) -> None:
        if not (match := _PLACE.fullmatch(place)):
            raise UserError(
                f"registry {place!r}: write vertex://PROJECT/LOCATION, for example "
                "vertex://my-project/us-central1"
            )
        self._place, (self.project, self.location) = place, match.groups()
        self._parent = f"projects/{self.project}/locations/{self.location}"

    def __str__(self) -> str:
        return self._place

    def resource_name(self, name: str) -> str:
        """Returns the full name of a model on Vertex AI, `projects/.../models/...`.

        Raises:
          UserError: If the name is not allowed.
        """
        check_name(name)
        return f"{self._parent}/models/{serving.MODEL_ID_PREFIX}{name}"

    def names(self) -> list[str]:
        """Returns the names of the models of this program in alphabetical order.

        Raises:
          UserError: If Vertex AI refuses the request.
          ConnectionError: If Vertex AI does not answer.
        """
        with refusals(self._place):
            models = self._client.list_models(
                request=v1.ListModelsRequest(parent=self._parent, filter=OURS)
            )
            return sorted(filter(None, map(name_of, models)))

    def versions(self, name: str) -> list[Version]:
        """Returns the versions of a model, oldest first; none for an unknown model.

        Versions that others have added are left out.

        Raises:
          UserError: If the name is not allowed, or Vertex AI refuses the request.
          ConnectionError: If Vertex AI does not answer.
        """
        return [
            Version(
                number=model.version_id,
                folder=model.artifact_uri,
                model_dir=f"{model.artifact_uri}/{serving.VERSION}",
                aliases=[*model.version_aliases],
            )
            for model in self.resources(name)
        ]

    def history(self, name: str) -> list[dict[str, Any]]:
        """Returns the events of a model, oldest first; none for an unknown model.

        Those of deleted versions, and of versions whose files are gone, are missing; so are
        deletions.

        Raises:
          UserError: If the name is not allowed, Vertex AI refuses, or a record cannot be read.
          ConnectionError: If Vertex AI or a store does not answer.
        """
        events = []
        for version in self.versions(name):
            if version.facts:
                events += [added(version.number, version.facts), *version.facts["moves"]]
        return sorted(events, key=lambda event: event["time"])

    def _insert(self, name: str, model_dir: str, facts: Mapping[str, Any]) -> str:
        if not (bucket := re.match("gs://[^/]+", model_dir)):
            raise UserError(
                f"{model_dir}: Vertex AI serves from buckets; copy the model to gs://BUCKET/DIR, "
                "and add that"
            )
        if self.all_versions(name) and not self.resources(name):
            raise UserError(
                f"{self.resource_name(name)} is not of this program; choose another name"
            )
        labels = (
            dict([MANAGED_BY])
            | {"name": name}
            | ({"run": facts["run"]} if facts.get("run") else {})
        )
        container = serving.container(facts.get("image", ""), name)
        folder = f"{bucket[0]}/{FOLDER}/{name}/{secrets.token_hex(8)}"
        write_record(folder, {**facts, "moves": []})
        # The folder stays if the upload fails, since the version may exist all the same.
        copy_tree(model_dir, f"{folder}/{serving.VERSION}")
        model = v1.Model(
            display_name=name,
            artifact_uri=folder,
            labels=labels,
            version_description="; ".join(facts["decision"]["reasons"])[:500],
            container_spec=container,
        )
        with refusals(self._place):
            return _AGAIN(self._upload)(name, model)

    def _upload(self, name: str, model: v1.Model) -> str:
        resource_name = self.resource_name(name)
        place = {"model_id": resource_name.rpartition("/")[2]}
        for other in self.resources(name):
            if other.artifact_uri == model.artifact_uri:
                return other.version_id  # An upload that seemed to fail has made it.
            place = {"parent_model": resource_name}
        request = v1.UploadModelRequest(parent=self._parent, model=model, **place)
        return self._client.upload_model(request=request).result(timeout=_UPLOAD_S).model_version_id

    def _do(self, name: str, event: dict[str, Any]) -> None:
        resource_name = self.resource_name(name)
        version = f"{resource_name}@{event['version']}"
        folder = self.find(name, event["version"]).folder
        record = read_record(folder)
        if event["event"] == DELETE:
            with refusals(self._place):
                self._client.delete_model_version(name=version).result()
            if record:
                delete_files(file.path for file in list_files(f"{folder}/"))
            return
        # Vertex AI would take an alias away from a version that others have added to the model.
        others = [model for model in self.all_versions(name) if name_of(model) != name]
        foreign = {alias for model in others for alias in model.version_aliases}
        if needed := foreign & {CHAMPION, PREVIOUS}:
            raise UserError(
                f"{resource_name}: {' and '.join(needed)} is a version of somebody else's; move "
                "that alias away"
            )
        with refusals(self._place):
            # Vertex AI takes an alias from the version that had it, so there always is a champion.
            if previous := event[PREVIOUS]:
                self._client.merge_version_aliases(
                    name=f"{resource_name}@{previous}", version_aliases=[PREVIOUS]
                )
            self._client.merge_version_aliases(
                name=version, version_aliases=sorted({CHAMPION, "default"} - foreign)
            )
        if record:
            write_record(folder, {**record, "moves": [*record["moves"], event]})

    def resources(self, name: str) -> list[v1.Model]:
        """Returns the versions of a model as Vertex AI has them, oldest first.

        It leaves out versions that others have added. There are none if the model is unknown.

        Raises:
          UserError: If the name is not allowed, or Vertex AI refuses.
          ConnectionError: If Vertex AI does not answer.
        """
        return [model for model in self.all_versions(name) if name_of(model) == name]

    def all_versions(self, name: str) -> list[v1.Model]:
        """Returns the versions of the model with this name's id, oldest first, whoever made them.

        There are none if no such model exists.

        Raises:
          UserError: If the name is not allowed, or Vertex AI refuses.
          ConnectionError: If Vertex AI does not answer.
        """
        with refusals(self._place), contextlib.suppress(exceptions.NotFound):
            models = self._client.list_model_versions(name=self.resource_name(name))
            return sorted(models, key=lambda model: int(model.version_id))
        return []

    @functools.cached_property
    def _client(self) -> ModelClientWithOverride:
        config = aiplatform.initializer.global_config
        return config.create_client(
            client_class=ModelClientWithOverride, location_override=self.location
        )


def name_of(model: v1.Model) -> str:
    """Returns the name in the registry of the model that a version belongs to.

    The name is empty if this program did not make the model or the version.
    """
    name = model.labels.get("name", "")
    id = model.name.rpartition("/")[2].partition("@")[0]
    return name if is_ours(model.labels) and id == f"{serving.MODEL_ID_PREFIX}{name}" else ""
