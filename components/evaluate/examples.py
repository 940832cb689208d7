"""Made-up records with a model's answers, by which a server of the model is checked later.

`components.register.answers` sends them. They contain nothing of any record of the dataset.
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
from components.serve.request import as_rows, ask

RECORDS, BYTES = 16, 1 << 20  # Vertex AI accepts requests of up to 1.5 MB of JSON.
_FIXED = {"string": "other", "bool": "false", "time": "2024-01-31"}


def sample(
    model: Model, manifest: Manifest, output: str, latency_ms: float | None
) -> dict[str, Any] | None:
    """Returns a few made-up records as a client sends them, with the model's answers.

    Args:
      model: The model.
      manifest: Manifest of the dataset that it was trained on.
      output: Name of the answer to keep.
      latency_ms: Most milliseconds that a server may take to answer one record; None for no limit.

    Returns:
      `instances`, at most `RECORDS` records as requests have them (a PNG file in base64 if the
      model takes image files, else an object by input); the name of the `output`; its `answers`,
      [N, ...] as nested lists; and `latency_ms`. For a table, the first record has null in place of
      all values that have a default. None if a single image is too large for a request, or if the
      model refuses the records.
    """
    features = manifest.source_columns if model.columns else manifest.inputs
    pixels = sum(math.prod(f.shape) for f in features)
    of_files = IMAGE_BYTES in model.signatures
    # As numbers of JSON, pixels take up to 4 characters each.
    if not (count := min(RECORDS, (BYTES if of_files else BYTES // 4) // pixels)):
        return None
    random = np.random.default_rng(0)
    columns = {f.name: made_up(f, count, random) for f in features}
    rows: list[Any]
    if of_files:
        (images,) = columns.values()
        rows = [
            {"b64": base64.b64encode(tf.io.encode_png(image).numpy()).decode()} for image in images
        ]
    else:
        rows = as_rows({name: column.tolist() for name, column in columns.items()})
        rows[0] |= {f.name: None for f in features if model.columns and f.default is not None}
    try:
        answers = ask(model, {"instances": rows}, count)[output]
    except UserError:  # The model may take only the texts of its vocabulary, for example.
        return None
    return {
        "instances": rows,
        "output": output,
        "answers": answers.tolist(),
        "latency_ms": latency_ms,
    }


def made_up(feature: Feature, count: int, random: np.random.Generator) -> np.ndarray:
    """Draws random values of a feature, [count, *shape].

    Images are uniform noise in their range of values. Numbers are normally distributed, with the
    mean and the standard deviation of the training split; without statistics these are 0 and 1, and
    a deviation of 0 becomes 1. Times come as ISO 8601 texts, and texts are `other`, or `false` for
    a boolean.
    """
    if feature.shape:
        low, high = feature.value_range or (0, 1)
        return random.uniform(low, high, (count, *feature.shape)).astype(feature.dtype)
    if feature.type in _FIXED:
        return np.full(count, _FIXED[feature.type])
    about = feature.statistics or Summary()
    return random.normal(about.mean or 0, about.std or 1, count).astype(feature.dtype)
