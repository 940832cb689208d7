"""The records that a model is worst at, with what it said of them, to be looked at."""

import base64
import math
from typing import Any

import numpy as np
import tensorflow as tf

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION
from components.evaluate.score import Answers

MOST, _SIDE = 24, 64


def badness(task: str, answers: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """How wrong each answer is, [N]; 0 or less of what is right. None of a task that only its own code knows.

    Of classes by how much the one that was said is more probable than the true one; of labels the largest error in a
    probability, above a half; of numbers the largest of the errors, each in units of its mean.
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
    """The worst 24 of the answers that are wrong, the worst first.

    Each has its `record` in the split's order, `label` and `answer`, and `row`, its columns, or `png`, its image in base64
    with every so many pixels if it is large.
    """
    manifest = answered.records.manifest
    if (bad := badness(manifest.task, answered.answers, answered.labels)) is None:
        return []
    order = np.argsort(-bad, kind="stable")[:MOST]
    found = []
    for at in order[bad[order] > 0].tolist():
        record, label, answer = int(answered.positions[at]), answered.labels[at], answered.answers[at]
        columns = answered.records.row(record)
        said = {"record": record, "label": label.tolist(), "answer": answer.tolist()}
        if names := manifest.class_names:
            said |= {"label": names[label], "said": names[answer.argmax()]}
        if manifest.is_table:
            said["row"] = {
                k: v.decode(errors="replace") if isinstance(v, bytes) else v.item() for k, v in columns.items()
            }
        else:
            (image,) = manifest.inputs
            said["png"] = _png(columns[image.name], image.value_range)
        found.append(said)
    return found


def _png(pixels: np.ndarray, value_range: tuple[float, float] | None) -> str | None:
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3):
        return None
    low, high = value_range or (pixels.min(), pixels.max())
    every = math.ceil(max(pixels.shape) / _SIDE)
    levels = (pixels[::every, ::every].astype(np.float64) - low) / max(high - low, 1e-9) * 255
    return base64.b64encode(tf.io.encode_png(levels.clip(0, 255).astype(np.uint8)).numpy()).decode()
