"""The Vertex AI Model Registry, as far as evaluation and promotion need it.

A model of ours is a Vertex model with our name as its display name; its versions carry the label `run`, and the
aliases `champion` and `previous` point at two of them. New versions come from `ModelUploadOp` in the pipeline.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from typing import Self

from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import GoogleAuthError
from google.cloud import aiplatform
from google.cloud.aiplatform.models import ModelRegistry, VersionInfo

from components.register.registry import CHAMPION, PREVIOUS, check_name
from trainer.base.errors import UserError, unknown

_PLACE = re.compile(r"vertex://(?P<project>[a-z][a-z0-9:.-]+)/(?P<location>[a-z0-9-]+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VertexRegistry:
    """Models of a project in a location. All methods raise UserError where Vertex AI refuses."""

    project: str
    location: str

    @classmethod
    def parse(cls, place: str) -> Self:
        """From `vertex://PROJECT/LOCATION`."""
        if not (match := _PLACE.fullmatch(place)):
            raise UserError(
                f"registry {place!r}: write vertex://PROJECT/LOCATION, for example vertex://my-project/us-central1"
            )
        return cls(**match.groupdict())

    def resource_name(self, name: str) -> str | None:
        """Resource name of the model, `projects/.../models/...`; of several with this name the oldest; or None."""
        check_name(name)
        with self._told():
            models = aiplatform.Model.list(
                filter=f'display_name="{name}"', order_by="create_time", project=self.project, location=self.location
            )
        return models[0].resource_name if models else None

    def alias(self, name: str, alias: str) -> str | None:
        """The version that an alias points at, or None."""
        return next((v.version_id for v in self._versions(name) if alias in v.version_aliases), None)

    def model_dir(self, name: str, version: str) -> str:
        """Where the SavedModel of a version lies, `gs://...`."""
        with self._told():
            return self._registry(name).get_model(version).uri

    def version_of(self, name: str, run: str) -> str | None:
        """The newest version that a run registered, or None."""
        # Asked of the versions: a list of models holds only the default version of each.
        versions = self._versions(name, f'labels.run="{run}"')
        return max((v.version_id for v in versions), key=int, default=None)

    def decided(self, name: str, fingerprint: str, split: str) -> int:
        """0: a version here does not tell by what it was made."""
        return 0

    def promote(self, name: str, version: str, *, instead_of: str | None) -> bool:
        """Moves the alias if it is still where the comparison found it. Returns whether it did.

        Vertex cannot compare and set in one request: of two promotions in the same second the later one stays.
        """
        if self.alias(name, CHAMPION) != instead_of:
            return False
        self._point(name, champion=version, previous=instead_of)
        return True

    def rollback(self, name: str) -> str:
        """Makes the previous champion the champion again, and the champion the previous one. Returns its version."""
        champion, previous = self.alias(name, CHAMPION), self.alias(name, PREVIOUS)
        if not champion or not previous:
            raise UserError(f"model {name!r} in {self} has no previous champion to go back to")
        self._point(name, champion=previous, previous=champion)
        return previous

    def __str__(self) -> str:
        return f"vertex://{self.project}/{self.location}"

    def _point(self, name: str, *, champion: str, previous: str | None) -> None:
        """Vertex takes an alias from the version that had it; at no moment is there no champion."""
        if champion not in (versions := [v.version_id for v in self._versions(name)]):
            raise unknown(f"version of model {name!r}", champion, versions)
        with self._told():
            registry = self._registry(name)
            if previous:
                registry.add_version_aliases([PREVIOUS], previous)
            registry.add_version_aliases([CHAMPION], champion)

    def _versions(self, name: str, query: str = "") -> list[VersionInfo]:
        with self._told():
            return registry.list_versions(query) if (registry := self._registry(name)) else []

    def _registry(self, name: str) -> ModelRegistry | None:
        resource_name = self.resource_name(name)
        return ModelRegistry(resource_name, project=self.project, location=self.location) if resource_name else None

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (GoogleAPICallError, GoogleAuthError) as error:
            raise UserError(f"{self}: {' '.join(str(error).split())}") from None
