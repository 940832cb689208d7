"""Made-up records with a model's answers, for which `components.register.answers` asks a server of the model again.

Nothing of a record of the dataset is in them.
"""

import base64
import math
from typing import Any

import numpy as np
import tensorflow as tf

from common.errors import UserError
from common.manifest import Feature, Manifest, Summary
from common.provenance import IMAGE_BYTES
from components.predict.model import Model
from components.serve.request import ask

RECORDS, BYTES = 16, 1 << 20  # Vertex AI takes 1.5 MB of JSON.


def sample(
    model: Model, manifest: Manifest, output: str, latency_ms: float | None
) -> dict[str, Any] | None:
    """Returns a few made-up records as a client sends them, with what the model answers.

    Args:
      model: The model.
      manifest: Of the dataset.
      output: Name of an answer.
      latency_ms: Most time that a server may take to answer one.

    Returns:
      `instances`, N records by column, of which the first lacks what has a default; the `output`;
      its `answers`, [N, ...]; and `latency_ms`. None for images that are too large, and for a model
      that refuses the records.
    """
    features = manifest.source_columns if model.columns else manifest.inputs
    pixels = sum(math.prod(f.shape) for f in features if f.shape)
    of_files = IMAGE_BYTES in model.signatures
    if not (
        count := min(RECORDS, (BYTES if of_files else BYTES // 4) // max(1, pixels))
    ):  # A pixel has 4 characters.
        return None
    random = np.random.default_rng(0)
    columns = {f.name: made_up(f, count, random) for f in features}
    if of_files:
        (images,) = columns.values()
        rows = [
            {"b64": base64.b64encode(tf.io.encode_png(image).numpy()).decode()} for image in images
        ]
    else:
        values = (column.tolist() for column in columns.values())
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]
        rows[0] |= {f.name: None for f in features if model.columns and f.default is not None}
    try:
        answers = ask(model, {"instances": rows}, count)[output]
    except UserError:  # Of texts that its vocabulary does not have, say.
        return None
    return {
        "instances": rows,
        "output": output,
        "answers": answers.tolist(),
        "latency_ms": latency_ms,
    }


def made_up(feature: Feature, count: int, random: np.random.Generator) -> np.ndarray:
    """Draws values of a feature, [count, ...]: numbers have its mean and deviation, texts mean nothing."""
    if feature.shape:
        low, high = feature.value_range or (0, 1)
        return random.uniform(low, high, (count, *feature.shape)).astype(feature.dtype)
    if feature.dtype == "string":
        return np.array(["false" if feature.type == "bool" else "other"] * count)
    about = feature.statistics or Summary()
    values = random.normal(about.mean or 0, about.std or 1, count).astype(feature.dtype)
    return values.astype("datetime64[s]").astype(str) if feature.type == "time" else values
