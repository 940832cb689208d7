"""AI Platform's names, of `tables/ai_platform.yaml`: legacy machines, scale tiers, and keys without an effect here."""

from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, create_model

from common.strict_yaml import parse
from components.train.cluster.checks import Model


class Legacy(NamedTuple):
    """What a legacy machine name stood for, as a Compute Engine type and its GPUs."""

    machine: str
    gpu: str | None = None
    count: int = 0

    def __str__(self) -> str:
        return f"{self.machine} with {self.count} {self.gpu}" if self.gpu else self.machine


_TABLE = parse((Path(__file__).parent / "tables" / "ai_platform.yaml").read_bytes())
LEGACY_MACHINES = {name: Legacy(*what) for name, what in _TABLE["machines"].items()}
LEGACY_TPU = "cloud_tpu"
TIERS: dict[str, dict[str, Any]] = _TABLE["tiers"]
CUSTOM = "CUSTOM"


def without_effect(name: str) -> type[Model]:
    """The keys of a mapping that have no effect here, each described by why that is so."""
    keys = {key: (Any, Field(None, description=why)) for key, why in _TABLE["without_effect"][name].items()}
    return create_model(name, __base__=Model, **keys)
