"""A few records of a split as a client sends them, with what the model has answered: who serves it later can compare.

sample = Sample(manifest, examples=1000, raw=True)
for columns in batches: sample.add(columns)
sample.answered(predict, output="probabilities")     # plain data; `components.register.answers` asks again
"""

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.base.manifest import Feature, Manifest
from trainer.base.spellings import marks

RECORDS, BYTES = 16, 1 << 20


class Sample:
    """At most `RECORDS` of the records added, spread evenly; of large images fewer, or none: `BYTES` of pixels together."""

    def __init__(self, manifest: Manifest, *, examples: int, raw: bool) -> None:
        """Of so many records to come. If `raw`, what is missing is sent in place of defaults, which it must become."""
        pixels = sum(math.prod(f.shape) for f in manifest.inputs if f.shape)
        self._left = min(RECORDS, BYTES // pixels) if pixels else RECORDS
        self._every = max(1, examples // max(1, self._left))
        self._features, self._raw, self._seen = manifest.inputs, raw, 0
        self._kept: list[dict[str, np.ndarray]] = []

    def add(self, columns: Mapping[str, tf.Tensor]) -> None:
        """Takes what it wants of the next records, [N, ...] by feature."""
        count = len(columns[self._features[0].name])
        at = np.arange(-self._seen % self._every, count, self._every)[: self._left]
        self._kept.append({f.name: tf.gather(columns[f.name], at).numpy() for f in self._features})
        self._left, self._seen = self._left - len(at), self._seen + count

    def answered(self, predict: Callable[[dict[str, tf.Tensor]], np.ndarray], output: str) -> dict[str, Any] | None:
        """`inputs` by name, with `dtype` and `shape`; the `output` of the signature; and the `answers` there, [N, ...].

        Numbers and texts are `values`, null for NaN; pixels are the `base64` of their bytes. None if nothing was kept.
        """
        held = {f.name: np.concatenate([rows[f.name] for rows in self._kept]) for f in self._features}
        if not len(held[self._features[0].name]):
            return None
        return {
            "inputs": {f.name: self._plain(f, held[f.name]) for f in self._features},
            "output": output,
            "answers": predict({name: tf.constant(values) for name, values in held.items()}).tolist(),
        }

    def _plain(self, feature: Feature, values: np.ndarray) -> dict[str, Any]:
        said = {"dtype": feature.dtype, "shape": list(values.shape)}
        if feature.shape:
            return {**said, "base64": base64.b64encode(values.tobytes()).decode()}
        plain = [value.decode() if isinstance(value, bytes) else value for value in values.tolist()]
        if self._raw and feature.default is not None:
            is_float = feature.dtype == "float32"
            default = float(np.float32(feature.default)) if is_float else feature.default
            absent = None if is_float else next(iter(marks(feature.missing or (), feature.dtype)), default)
            plain = [absent if value == default else value for value in plain]
        return {**said, "values": plain}
