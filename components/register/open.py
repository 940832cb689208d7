"""Which registry a name means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.register.registry import Registry

if TYPE_CHECKING:
    from components.register.vertex import VertexRegistry


def open_registry(place: str) -> Registry | VertexRegistry:
    """The registry at a place: a directory, or `vertex://PROJECT/LOCATION`."""
    if place.startswith("vertex://"):
        from components.register.vertex import VertexRegistry  # imports Google's client, 2 s

        return VertexRegistry.parse(place)
    return Registry(place)
