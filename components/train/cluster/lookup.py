"""What `--cluster` names, before it is a cluster: a file of ours, one of AI Platform, or a scale tier.

source = read("config.yaml")  # or read("STANDARD_1")
source.values  # as our own cluster file would say it
for note in source.notes: print(note)
"""

import os
from pathlib import Path
from typing import Any

from common.errors import UserError, about, unknown
from common.strict_yaml import parse
from components.train.cluster import ai_platform
from components.train.cluster.notes import Source
from components.train.cluster.scale_tiers import CUSTOM, LEGACY_MACHINES, LEGACY_TPU, TIERS

_NAMES = (*TIERS, CUSTOM, *LEGACY_MACHINES, LEGACY_TPU)


def read(name: str | Path) -> Source:
    """Reads a file, or expands the name of a tier or legacy machine."""
    name, written = str(name), str(name).replace("-", "_")  # gcloud wrote `basic-gpu` for `BASIC_GPU`
    tier = next((each for each in (written.upper(), written.lower()) if each in _NAMES), None)
    if tier and not os.path.lexists(name):
        of_tier = tier in (*TIERS, CUSTOM)
        values = {"scaleTier": tier} if of_tier else {"scaleTier": CUSTOM, "masterType": tier}
        kind, document = f"AI Platform's {'scale tier' if of_tier else 'machine'} {tier}", {"trainingInput": values}
    else:
        kind, document = "AI Platform trainingInput", _parsed(name)
        if not ai_platform.is_one(document):
            return Source(name=name, kind="cluster file", values=document, ours=True)
    with about(name):
        return ai_platform.translate(document, name, kind)


def _parsed(name: str) -> Any:
    path = Path(name)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        near = [str(each) for each in path.parent.glob("*.yaml")]
        if path.suffix or os.sep in name:
            raise unknown("cluster file", name, near) from None
        raise unknown("cluster file or scale tier", name, [*near, *_NAMES]) from None
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        raise UserError(f"cluster file {name}: {getattr(error, 'strerror', None) or error}") from None
    with about(name):
        return parse(data)
