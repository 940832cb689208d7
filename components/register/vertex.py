"""The Vertex AI Model Registry, as far as evaluation and promotion need it.

A model of ours is a Vertex model with our name as its display name; its versions carry the label `run`, and the
alias `champion` points at one of them. New versions come from `ModelUploadOp` in the pipeline.
"""

from __future__ import annotations

import dataclasses
import re

from google.cloud import aiplatform

from components.register.registry import CHAMPION
from trainer.errors import UserError

_PLACE = re.compile(r"vertex://(?P<project>[a-z][a-z0-9:.-]+)/(?P<location>[a-z0-9-]+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VertexRegistry:
    """Models of a project in a location."""

    project: str
    location: str

    @classmethod
    def parse(cls, place: str) -> VertexRegistry:
        """From `vertex://PROJECT/LOCATION`."""
        if not (match := _PLACE.fullmatch(place)):
            raise UserError(
                f"registry {place!r}: write vertex://PROJECT/LOCATION, for example vertex://my-project/us-central1"
            )
        return cls(**match.groupdict())

    def resource_name(self, name: str) -> str | None:
        """Resource name of the model, `projects/.../models/...`, or None."""
        models = aiplatform.Model.list(
            filter=f'display_name="{name}"', order_by="create_time", project=self.project, location=self.location
        )
        return models[0].resource_name if models else None

    def alias(self, name: str, alias: str) -> str | None:
        """The version that an alias points at, or None."""
        return next((v.version_id for v in self._versions(name) if alias in v.version_aliases), None)

    def model_dir(self, name: str, version: str) -> str:
        """Where the SavedModel of a version lies, `gs://...`."""
        return aiplatform.Model(
            self.resource_name(name), version=version, project=self.project, location=self.location
        ).uri

    def version_of(self, name: str, run: str) -> str | None:
        """The version that a run registered, or None."""
        models = aiplatform.Model.list(
            filter=f'display_name="{name}" AND labels.run="{run}"', project=self.project, location=self.location
        )
        return models[0].version_id if models else None

    def metrics(self, name: str, version: str, fingerprint: str, split: str) -> None:
        """Vertex keeps none of ours: the champion is always scored again."""

    def promote(self, name: str, version: str, *, instead_of: str | None) -> bool:
        """Moves the alias if it is still where the comparison found it."""
        if self.alias(name, CHAMPION) != instead_of:
            return False
        self._registry(name).add_version_aliases([CHAMPION], version)
        return True

    def _registry(self, name: str) -> aiplatform.models.ModelRegistry:
        return aiplatform.models.ModelRegistry(self.resource_name(name), project=self.project, location=self.location)

    def _versions(self, name: str) -> list[aiplatform.models.VersionInfo]:
        return self._registry(name).list_versions() if self.resource_name(name) else []
