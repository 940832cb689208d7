"""Scores an exported model on one split of a dataset, each record once.

score = score_model("jobs/m/model", "data/mnist")
score.metrics["accuracy"]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from trainer import records
from trainer.errors import UserError
from trainer.manifest import Manifest

_BATCH = 512
_SMALLEST = 1e-7  # log loss of a probability that float32 rounds to zero is bounded


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """What a model does on a split.

    Attributes:
      metrics: `accuracy` and `loss` (mean cross-entropy, nats), over `examples`.
      baseline: The same for the answer that looks at nothing: the most frequent class of the training split.
      confusion: Examples by [true class][predicted class].
    """

    metrics: Mapping[str, float]
    baseline: Mapping[str, float]
    confusion: tuple[tuple[int, ...], ...]


def score_model(model_dir: str, data_dir: str, split: str = "test") -> Score:
    """Loads the SavedModel and scores a split of the dataset.

    Raises:
      UserError: If there is no such model or split, or the model is made for other data.
    """
    manifest = Manifest.load(data_dir)
    predict = load_predictor(model_dir, manifest)
    records.verify(manifest, data_dir, split)
    columns = records.resident(manifest, data_dir, split)
    labels = columns.pop(manifest.label).numpy()
    parts = [
        predict({name: column[start : start + _BATCH] for name, column in columns.items()})
        for start in range(0, len(labels), _BATCH)
    ]
    return _score(np.concatenate(parts), labels, np.asarray(manifest.split("train").class_histogram))


def load_predictor(model_dir: str, manifest: Manifest) -> Callable[[dict[str, tf.Tensor]], np.ndarray]:
    """A function from features by name [N, ...] to probabilities [N, classes] of the model in `model_dir`.

    Raises:
      UserError: If there is no model, or it does not answer for this dataset's features and classes. So does the
        function, where it can only be seen from the answers.
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


def _score(probabilities: np.ndarray, labels: np.ndarray, train_histogram: np.ndarray) -> Score:
    classes = probabilities.shape[1]
    predicted = probabilities.argmax(axis=1)
    confusion = np.bincount(labels * classes + predicted, minlength=classes * classes).reshape(classes, classes)
    majority = train_histogram.argmax()
    shares = np.maximum(train_histogram / train_histogram.sum(), _SMALLEST)
    return Score(
        metrics={
            "accuracy": float((predicted == labels).mean()),
            "loss": float(-np.log(np.maximum(probabilities[np.arange(len(labels)), labels], _SMALLEST)).mean()),
            "examples": len(labels),
        },
        baseline={"accuracy": float((labels == majority).mean()), "loss": float(-np.log(shares[labels]).mean())},
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )
