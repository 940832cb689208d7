"""Scores an exported model on one split of a dataset, each record once.

score_model("jobs/m/model", "data/mnist", "test")["metrics"]["accuracy"]
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from trainer.base import provenance, roc
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest
from trainer.data import records

_BATCH = 512
_SMALLEST = 1e-7  # log loss of a probability that float32 rounds to zero is bounded


def score_model(model_dir: str, data_dir: str, split: str) -> dict[str, Any]:
    """Loads the SavedModel and scores a split of the dataset.

    Returns:
      `metrics`: those of `measure`, over `examples`. `confusion`: examples by [true class][predicted class]. `roc`: of
      two classes false positive rate, true positive rate, and the least probability that counts as positive; else None.

    Raises:
      UserError: If there is no such model or split, or the model is made for other data or may have seen this split.
    """
    manifest = Manifest.load(data_dir)
    provenance.check_unseen(manifest, split, model_dir)
    predict = load_predictor(model_dir, manifest)
    parts, labels = [], []
    for columns in records.batches(manifest, data_dir, split, _BATCH):
        parts.append(predict({feature.name: columns[feature.name] for feature in manifest.inputs}))
        labels.append(columns[manifest.label].numpy())
    probabilities, labels = np.concatenate(parts), np.concatenate(labels)
    classes = probabilities.shape[1]
    cells = labels * classes + probabilities.argmax(axis=1)
    metrics, curve = measure(probabilities, labels), None
    if "auc" in metrics:
        curve = np.minimum(np.stack(roc.curve(probabilities[:, 1], labels == 1), axis=1), 1.0).tolist()
    return {
        "metrics": {**metrics, "examples": len(labels)},
        "confusion": np.bincount(cells, minlength=classes * classes).reshape(classes, classes).tolist(),
        "roc": curve,
    }


def measure(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """`accuracy`, `loss` (mean cross-entropy, nats), and `auc` of two classes that are both there.

    Probabilities are [N, classes], labels [N].
    """
    of_truth = np.maximum(probabilities[np.arange(len(labels)), labels], _SMALLEST)
    metrics = {
        "accuracy": float((probabilities.argmax(axis=1) == labels).mean()),
        "loss": float(-np.log(of_truth).mean()),
    }
    if probabilities.shape[1] == 2 and (area := roc.auc(probabilities[:, 1], labels == 1)) is not None:
        metrics["auc"] = area
    return metrics


def load_predictor(model_dir: str, manifest: Manifest) -> Callable[[dict[str, tf.Tensor]], np.ndarray]:
    """A function from features by name [N, ...] to probabilities [N, classes] of the model in `model_dir`.

    It raises UserError, as this does, for a model that is not there or does not answer for these features and classes.
    """
    try:
        if not tf.saved_model.contains_saved_model(model_dir):
            raise UserError(f"{model_dir}: no SavedModel here (a finished training job writes one to <job-dir>/model)")
        model = tf.saved_model.load(model_dir)
    except (OSError, tf.errors.OpError) as error:
        raise UserError(f"{model_dir}: the model cannot be read ({' '.join(str(error).split())})") from None
    serve = model.signatures.get("serving_default")
    answers = serve.structured_outputs if serve else {}
    if missing := {"probabilities", "class_name"} - set(answers):
        raise UserError(f"{model_dir}: signature serving_default does not give {' and '.join(sorted(missing))}")
    features = manifest.inputs
    wanted = {f.name: f"{f.dtype}{tf.TensorShape([None, *f.shape])}" for f in features}
    takes = {name: f"{spec.dtype.name}{spec.shape}" for name, spec in serve.structured_input_signature[1].items()}
    if takes != wanted:
        raise UserError(
            f"{model_dir} takes {takes}; dataset {manifest.name!r} has {wanted}: it was trained on other data"
        )
    classes = answers["probabilities"].shape[-1]
    if classes != len(manifest.class_names):
        raise UserError(
            f"{model_dir} knows {classes} classes; dataset {manifest.name!r} has {len(manifest.class_names)}"
        )
    names = np.array([name.encode() for name in manifest.class_names], object)

    def predict(features: dict[str, tf.Tensor], _keep_alive: object = model) -> np.ndarray:
        answers = serve(**features)
        probabilities, given = answers["probabilities"].numpy(), answers["class_name"].numpy()
        if not np.isfinite(probabilities).all():
            raise UserError(f"{model_dir} answers with probabilities that are not finite: its training diverged")
        expected = names[probabilities.argmax(axis=1)]
        if (given != expected).any():
            wrong = (given != expected).argmax()
            raise UserError(
                f"{model_dir} says {given[wrong].decode()!r} where dataset {manifest.name!r} has "
                f"{expected[wrong].decode()!r}: it was trained on other data"
            )
        return probabilities

    return predict
