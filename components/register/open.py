"""Which registry a name means: a directory, or `vertex://PROJECT/LOCATION`."""

from __future__ import annotations

from typing import Protocol

from components.register.registry import Registry


class ModelRegistry(Protocol):
    """What evaluation and promotion need of a registry."""

    def alias(self, name: str, alias: str) -> str | None:
        """The version that an alias points at, or None."""

    def model_dir(self, name: str, version: str) -> str:
        """Where the SavedModel of a version lies."""

    def version_of(self, name: str, run: str) -> str | None:
        """The version that a run registered, or None."""

    def promote(self, name: str, version: str, *, instead_of: str | None) -> bool:
        """Makes a version the champion if the champion is still `instead_of`. Returns whether it did."""

    def rollback(self, name: str) -> str:
        """Makes the previous champion the champion again. Returns its version."""


def open_registry(place: str) -> ModelRegistry:
    """The registry at a place.

    Raises:
      UserError: If the place cannot be understood.
    """
    if place.startswith("vertex://"):
        from components.register.vertex import VertexRegistry  # imports Google's client, 2 s

        return VertexRegistry.parse(place)
    return Registry.open(place)
