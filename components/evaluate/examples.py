"""Single records with a model's answers: the worst of a split, to be looked at, and made-up ones, to compare with later.

Nothing of a record of the dataset is in the made-up ones; `components.register.answers` asks for their answers again.
"""

import base64
import math
from typing import Any

import numpy as np
import tensorflow as tf

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Feature, Manifest, Summary
from common.spellings import marks
from components.evaluate.score import Answers, Model

MOST_WORST, _SIDE = 24, 64
RECORDS, BYTES = 16, 1 << 20


def badness(task: str, answers: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """Returns how wrong each answer is, [N], 0 or less of what is right; None for a task that only its own code knows.

    For classes it is by how much the predicted one is more probable than the true one; for labels the largest error in a
    probability, above a half; for numbers the largest of the errors, each in units of its mean.
    """
    if task == CLASSIFICATION:
        return answers.max(axis=1) - answers[np.arange(len(labels)), labels]
    if task == MULTI_LABEL:
        return np.abs(answers - labels).max(axis=1) - 0.5
    if task == REGRESSION:
        errors = np.abs(answers.astype(np.float64) - labels.reshape(answers.shape))
        return (errors / np.maximum(errors.mean(axis=0), np.finfo(float).tiny)).max(axis=1)
    return None


def worst(answered: Answers) -> list[dict[str, Any]]:
    """Returns the worst 24 of the answers that are wrong, the worst first.

    Each has its `record` in the split's order, `label` and `answer`, and `row`, its columns, or `png`, its image in base64
    with every so many pixels if it is large.
    """
    manifest = answered.records.manifest
    if (bad := badness(manifest.task, answered.answers, answered.labels)) is None:
        return []
    order = np.argsort(-bad, kind="stable")[:MOST_WORST]
    shown = []
    for at in order[bad[order] > 0].tolist():
        record, label, answer = int(answered.positions[at]), answered.labels[at], answered.answers[at]
        columns = answered.records.row(record)
        example = {"record": record, "label": label.tolist(), "answer": answer.tolist()}
        if names := manifest.class_names:
            example |= {"label": names[label], "said": names[answer.argmax()]}
        if manifest.is_table:
            example["row"] = {
                k: v.decode(errors="replace") if isinstance(v, bytes) else v.item() for k, v in columns.items()
            }
        else:
            (image,) = manifest.inputs
            example["png"] = _png(columns[image.name], image.value_range)
        shown.append(example)
    return shown


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
        values = np.array(["false" if feature.boolean else "other"] * count, object)
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


def _png(pixels: np.ndarray, value_range: tuple[float, float] | None) -> str | None:
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3):
        return None
    low, high = value_range or (pixels.min(), pixels.max())
    every = math.ceil(max(pixels.shape) / _SIDE)
    levels = (pixels[::every, ::every].astype(np.float64) - low) / max(high - low, 1e-9) * 255
    return base64.b64encode(tf.io.encode_png(levels.clip(0, 255).astype(np.uint8)).numpy()).decode()
