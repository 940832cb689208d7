"""The Vertex AI Model Registry.

A name of ours is one Vertex model with an id that follows from the name, so that two who are the first at once make one model.
It is ours by its labels; a model of somebody else's, whatever its display name, is never looked at. The alias `default`, which
callers get who name no version, follows the champion.

A version has a folder of its own in the bucket of the run that made it, and needs nothing else of that run:

gs://BUCKET/models/<model>/<random>/1/            the SavedModel, numbered as TensorFlow Serving wants it
gs://BUCKET/models/<model>/<random>/version.json  what Vertex AI has no place for: facts, and who moved an alias when and why

`version.json` is written first, and says that the folder is this program's. The folder is whole before Vertex AI is told of it,
and goes after the version does: a folder without a version is what a process that died has left. A move of an alias whose process
died before it wrote that down is in the project's audit logs only.
"""

import contextlib
import functools
import re
import secrets
from typing import Any

import tenacity
from etils import epath
from google.api_core import exceptions
from google.auth.transport import requests
from google.cloud import aiplatform
from google.cloud import aiplatform_v1 as v1
from google.cloud.aiplatform.utils import ModelClientWithOverride

from common.errors import UserError
from common.google_cloud import MANAGED_BY, OURS, is_ours, refusals
from common.storage.files import copy_tree, delete_files, list_files, write_text
from components.register import serving
from components.register.registry import (
    CHAMPION,
    DELETE,
    PREVIOUS,
    RECORD,
    Card,
    Facts,
    Registry,
    added,
    check_name,
    note_foreign,
    read_record,
    write_record,
)

FOLDER = "models"  # of a bucket, for all versions
_PLACE = re.compile(r"vertex://([a-z][a-z0-9:.-]+)/([a-z0-9-]+)")
_ATTEMPTS, _WAIT_S, _UPLOAD_S = 10, 3.0, 1800.0


class VertexRegistry(Registry):
    """Models of a project in a location."""

    def __init__(self, place: str) -> None:
        if not (match := _PLACE.fullmatch(place)):
            raise UserError(
                f"registry {place!r}: write vertex://PROJECT/LOCATION, for example vertex://my-project/us-central1"
            )
        self._place, (project, self._location) = place, match.groups()
        self._parent = f"projects/{project}/locations/{self._location}"

    def __str__(self) -> str:
        return self._place

    def resource_name(self, name: str) -> str:
        """Returns `projects/.../models/...`; an id begins with a letter."""
        check_name(name)
        return f"{self._parent}/models/m-{name[:61]}"

    def names(self) -> list[str]:
        """Returns the names of the models, in order."""
        with refusals(self._place):
            models = self._client.list_models(request=v1.ListModelsRequest(parent=self._parent, filter=OURS))
            return sorted(filter(None, map(name_of, models)))

    def versions(self, name: str) -> list[str]:
        """Returns the versions of a model, oldest first."""
        return list(self.resources(name))

    def aliases(self, name: str) -> dict[str, str]:
        """Returns the version by alias."""
        return {alias: version for version, model in self.resources(name).items() for alias in model.version_aliases}

    def show(self, name: str, version: str) -> dict[str, Any]:
        """Returns the facts that a version was registered with; none once its files are gone."""
        record = read_record(folder_of(self._find(name, version)))
        return {"version": version, **record["facts"]} if record else {}

    def model_dir(self, name: str, version: str) -> str:
        """Returns where the SavedModel of a version lies, `gs://...`."""
        return f"{folder_of(self._find(name, version))}/{serving.VERSION}"

    def history(self, name: str) -> list[dict[str, Any]]:
        """Returns the events of the versions that exist, oldest first."""
        events = []
        for version, model in self.resources(name).items():
            if record := read_record(folder_of(model)):
                events += [added(version, record["facts"]), *record["moves"]]
        return sorted(events, key=lambda event: event["time"])

    def version_of(self, name: str, run: str) -> str | None:
        """Returns the newest version that a run registered, or None."""
        return next((v for v, m in reversed(self.resources(name).items()) if m.labels.get("run") == run), None)

    def _insert(self, name: str, model_dir: str, facts: Facts, card: Card | None) -> str:
        if not (bucket := re.match("gs://[^/]+", model_dir)):
            raise UserError(
                f"{model_dir}: Vertex AI serves from buckets; copy the model to gs://BUCKET/DIR, and add that"
            )
        versions = self.all_versions(name)
        if versions and not any(name_of(model) == name for model in versions):
            raise UserError(f"{self.resource_name(name)} is not of this program; choose another name")
        folder = f"{bucket[0]}/{FOLDER}/{name}/{secrets.token_hex(8)}"
        labels = dict([MANAGED_BY]) | {"name": name} | ({"run": facts["run"]} if facts.get("run") else {})
        if server := facts.get("serving_image"):
            serving.check("--serving-image", server)
            container = serving.container(server, name)
        else:  # Vertex AI takes no files without a container: this one serves nothing
            serving.check("--image", facts.get("image", ""))
            container = {"image_uri": facts["image"]}
            labels["servable"] = "no"
        model = v1.Model(
            display_name=name,
            artifact_uri=folder,
            labels=labels,
            version_description="; ".join(facts["decision"]["reasons"])[:500],
            container_spec=container,
        )
        write_record(folder, {"registry": str(self), "facts": dict(facts), "moves": []})
        # It stays: of an upload that fails nobody knows whether there is a version now.
        copy_tree(model_dir, f"{folder}/{serving.VERSION}")
        with refusals(self._place):
            version = self._upload(name, model)
        if card:
            write_text(folder_of(model) / "MODEL_CARD.md", card({"version": version, **facts}))
        return version

    def _upload(self, name: str, model: v1.Model) -> str:
        resource_name = self.resource_name(name)
        races = tenacity.retry_if_exception_type((exceptions.Conflict, exceptions.NotFound))  # to be the first
        wait = tenacity.wait_fixed(_WAIT_S)
        stop = tenacity.stop_after_attempt(_ATTEMPTS)
        for attempt in tenacity.Retrying(retry=races, wait=wait, stop=stop, reraise=True):
            with attempt:
                first = not self.resources(name)
                place = {"model_id": resource_name.rpartition("/")[2]} if first else {"parent_model": resource_name}
                request = v1.UploadModelRequest(parent=self._parent, model=model, **place)
                return self._client.upload_model(request=request).result(timeout=_UPLOAD_S).model_version_id

    def _do(self, name: str, event: dict[str, Any]) -> None:
        model = self._find(name, event["version"])
        resource_name = self.resource_name(name)
        version = f"{resource_name}@{event['version']}"
        with refusals(self._place):
            if event["event"] == DELETE:
                record = read_record(folder_of(model))
                self._client.delete_model_version(name=version).result()
                if record:
                    _delete_folder(folder_of(model))
                return
            aliases = {alias for other in self.all_versions(name) for alias in other.version_aliases}
            theirs = aliases - self.aliases(name).keys()
            if needed := theirs & {CHAMPION, PREVIOUS}:
                raise UserError(
                    f"{resource_name}: {' and '.join(needed)} is a version of somebody else's; move that alias away"
                )
            # Vertex takes an alias from the version that had it: at no moment is there no champion.
            if previous := event[PREVIOUS]:
                self._client.merge_version_aliases(name=f"{resource_name}@{previous}", version_aliases=[PREVIOUS])
            self._client.merge_version_aliases(name=version, version_aliases=sorted({CHAMPION, "default"} - theirs))
        if record := read_record(folder_of(model)):
            write_record(folder_of(model), {**record, "moves": [*record["moves"], event]})

    def _who(self) -> str:
        with refusals(self._place):
            credentials = aiplatform.initializer.global_config.credentials
            if getattr(credentials, "service_account_email", None) == "default":  # of a machine, which is told its name
                credentials.refresh(requests.Request())
        return getattr(credentials, "service_account_email", None) or super()._who()

    def resources(self, name: str) -> dict[str, v1.Model]:
        """Returns the versions of our model of this name, oldest first; none if there is no such model."""
        ours = {}
        for model in self.all_versions(name):
            if name_of(model) == name:
                ours[model.version_id] = model
            else:
                note_foreign(f"{self.resource_name(name)}@{model.version_id}")
        return ours

    def all_versions(self, name: str) -> list[v1.Model]:
        """Returns the versions of the model of this name, whoever made them, oldest first."""
        with refusals(self._place), contextlib.suppress(exceptions.NotFound):
            models = self._client.list_model_versions(name=self.resource_name(name))
            return sorted(models, key=lambda model: int(model.version_id))
        return []

    def _find(self, name: str, version: str) -> v1.Model:
        models = self.resources(name)
        return models[version] if version in models else models[self.find(name, version)]

    @functools.cached_property
    def _client(self) -> ModelClientWithOverride:
        config = aiplatform.initializer.global_config
        return config.create_client(client_class=ModelClientWithOverride, location_override=self._location)


def name_of(model: v1.Model) -> str:
    """Returns the name of our model that a version is of; nothing if that or the version is not ours."""
    name = model.labels.get("name", "")
    id = model.name.rpartition("/")[2].partition("@")[0]
    return name if is_ours(model.labels) and id == f"m-{name[:61]}" else ""


def folder_of(model: v1.Model) -> epath.Path:
    """Returns the folder that is a version's own."""
    return epath.Path(model.artifact_uri)


def _delete_folder(folder: epath.Path) -> None:
    paths = {file.path for file in list_files(f"{folder}/")}
    delete_files(paths - {record := f"{folder}/{RECORD}"})
    delete_files([record])
