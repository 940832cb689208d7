"""A few records as a client sends them, with what the model has answered: who serves it later can compare.

`components.register.answers` asks again.
"""

import base64
import math
from typing import Any

import numpy as np

from components.evaluate.score import Answers
from trainer.base.manifest import Feature, Manifest
from trainer.base.spellings import marks

RECORDS, BYTES = 16, 1 << 20


def sample(answered: Answers, *, raw: bool) -> dict[str, Any] | None:
    """`inputs` by name, with `dtype` and `shape`; the `output` of the signature; and the `answers` there, [N, ...].

    Numbers and texts are `values`, null for NaN; pixels are the `base64` of their bytes. If `raw`, what is missing is sent in
    place of defaults, which it must become. None of images that are too large for it.
    """
    records = answered.records
    taken = answered.of(places(records.manifest, len(answered.labels)))
    if not len(taken.labels):
        return None
    rows = records.rows(taken.positions.tolist())
    inputs = {f.name: plain(f, rows[f.name], raw=raw) for f in records.manifest.inputs}
    return {"inputs": inputs, "output": records.task.answers[0], "answers": taken.answers.tolist()}


def places(manifest: Manifest, count: int) -> np.ndarray:
    """At most `RECORDS` of so many, spread evenly; of large images fewer, or none: `BYTES` of pixels together."""
    pixels = sum(math.prod(f.shape) for f in manifest.inputs if f.shape)
    most = min(RECORDS, BYTES // pixels) if pixels else RECORDS
    return np.arange(0, count, max(1, count // max(1, most)))[:most]


def plain(feature: Feature, values: np.ndarray, *, raw: bool) -> dict[str, Any]:
    """The values of a feature, [N, ...], as JSON has them."""
    said = {"dtype": feature.dtype, "shape": list(values.shape)}
    if feature.shape:
        return {**said, "base64": base64.b64encode(values.tobytes()).decode()}
    found = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
    if raw and feature.default is not None:
        is_float = feature.dtype == "float32"
        default = float(np.float32(feature.default)) if is_float else feature.default
        absent = None if is_float else next(iter(marks(feature.missing or (), feature.dtype)), default)
        found = [absent if value == default else value for value in found]
    return {**said, "values": found}
