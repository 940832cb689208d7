"""Made-up records with a model's answers, for which `components.register.answers` asks again later.

Nothing of a record of the dataset is in them.
"""

import base64
import math
from typing import Any

import numpy as np
import tensorflow as tf

from common.manifest import Feature, Manifest, Summary
from common.spellings import marks
from components.evaluate.score import Model

RECORDS, BYTES = 16, 1 << 20


def sample(model: Model, manifest: Manifest, output: str, *, raw: bool) -> dict[str, Any] | None:
    """Returns a few made-up records as a client sends them, with what the model answers.

    Returns:
      `inputs` by name, with `dtype` and `shape`; the `output` of the signature; and the `answers` there, [N, ...]. Numbers and
      texts are `values`, null for NaN; pixels are the `base64` of their bytes. If `raw`, the first record lacks what has a
      default, which the model puts in. None for images that are too large, and for a model that refuses the records.
    """
    pixels = sum(math.prod(f.shape) for f in manifest.inputs if f.shape)
    if not (count := min(RECORDS, BYTES // max(1, pixels))):
        return None
    random = np.random.default_rng(0)
    rows = {f.name: made_up(f, count, random, raw=raw) for f in manifest.inputs}
    try:
        answers = model.serve(**{name: tf.constant(values) for name, values in rows.items()})[output]
    except tf.errors.OpError:  # of texts that its vocabulary does not have, say
        return None
    inputs = {f.name: plain(rows[f.name], f.dtype) for f in manifest.inputs}
    return {"inputs": inputs, "output": output, "answers": answers.numpy().tolist()}


def made_up(feature: Feature, count: int, random: np.random.Generator, *, raw: bool) -> np.ndarray:
    """Draws values of a feature, [count, ...]: numbers have its mean and deviation, texts mean nothing."""
    if feature.shape:
        low, high = feature.value_range or (0, 1)
        return random.uniform(low, high, (count, *feature.shape)).astype(feature.dtype)
    if feature.dtype == "string":
        values = np.array(["false" if feature.type == "bool" else "other"] * count, object)
    else:
        about = feature.statistics or Summary()
        values = random.normal(about.mean or 0, about.std or 1, count).astype(feature.dtype)
    if raw and feature.default is not None:
        absent = [math.nan] if feature.dtype == "float32" else marks(feature.missing or (), feature.dtype)
        values[0] = next(iter(absent), values[0])
    return values


def plain(values: np.ndarray, dtype: str) -> dict[str, Any]:
    """Returns the values of a feature, [N, ...], as JSON has them."""
    form = {"dtype": dtype, "shape": list(values.shape)}
    if values.ndim > 1:
        return {**form, "base64": base64.b64encode(values.tobytes()).decode()}
    return {**form, "values": [None if value != value else value for value in values.tolist()]}
