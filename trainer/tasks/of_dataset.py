"""Tasks of datasets, one for each kind of label.

# my/model.py, --model my.model:network
def task(manifest):
    loss = keras.losses.Huber(reduction="none")
    return task_of(manifest, loss=loss, metrics=[keras.metrics.LogCoshError()])
"""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from common.manifest import MULTI_LABEL, REGRESSION, Manifest
from trainer.tasks.task import Task, columns

# Lower bound in logarithms: float32 rounds smaller probabilities, as 1 - p, to 0.
_MIN_PROBABILITY = 1e-7


def task_of(manifest: Manifest, **options: Any) -> Task:
    """Returns the task of a dataset's label.

    Args:
      manifest: Manifest of the dataset.
      **options: Options of `Task`.

    Raises:
      UserError: If names of metrics are wrong, or a dataset for regression has no training
        examples.
    """
    if manifest.task == REGRESSION:
        return Regression(
            manifest.targets, tuple(std for _, std in manifest.target_spreads), **options
        )
    if manifest.task == MULTI_LABEL:
        return MultiLabel(manifest.targets, **options)
    return Classification(manifest.class_names, **options)


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """One of several classes: logits [N, classes] of any float type, and integer labels [N]."""

    meaning = "logits, one for each class"
    answers = ("probabilities", "class_index", "class_name")
    ranking = ("auc", "accuracy")  # With two classes `auc`, which depends on no threshold.
    class_names: tuple[str, ...]  # In the order of the labels' values.

    @property
    def outputs(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def default_loss(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the cross-entropy in nats of each example, float32 [N]."""
        classes = tf.one_hot(labels, len(self.class_names))
        return keras.losses.categorical_crossentropy(
            classes, self._logits(outputs), from_logits=True
        )

    def default_metrics(self) -> list[keras.metrics.Metric]:
        """Returns `accuracy`, of the most probable class, and for two classes `auc`."""
        auc = [_SecondClassAUC(name="auc")] if len(self.class_names) == 2 else []
        return [keras.metrics.SparseCategoricalAccuracy("accuracy"), *auc]

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns probabilities, float32 [N, classes]."""
        return tf.nn.softmax(self._logits(outputs))

    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the class and the probabilities of each example.

        Returns:
          `probabilities` float32 [N, classes], `class_index` int64 [N] and `class_name` strings
          [N].
        """
        probabilities = self.predictions(outputs)
        index = tf.argmax(probabilities, axis=1)
        names = tf.gather(tf.constant(self.class_names), index)
        return {"probabilities": probabilities, "class_index": index, "class_name": names}

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """Returns `accuracy`, `loss` (mean cross-entropy in nats), and those of `metrics`.

        For two classes `auc` is added, if the labels have both. The answers are probabilities [N,
        classes].
        """
        accuracy = (answers.argmax(axis=1) == labels).mean()
        loss = _mean_log_loss(answers[np.arange(len(labels)), labels])
        auc = _mean_auc(answers[:, 1:], labels[:, np.newaxis]) if len(self.class_names) == 2 else {}
        return {**super().measure(answers, labels), "accuracy": accuracy, "loss": loss, **auc}

    def _logits(self, outputs: tf.Tensor) -> tf.Tensor:
        return tf.cast(outputs, tf.float32)


class Binary(Classification):
    """Two classes, with one logit [N, 1] or [N], of the second class.

    Clients get the same answers as from two logits.
    """

    meaning = "the logit of the second of two classes"
    outputs = 1

    def default_metrics(self) -> list[keras.metrics.Metric]:
        """Returns `accuracy`, at a probability of one half, and `auc`."""
        return [keras.metrics.BinaryAccuracy("accuracy"), keras.metrics.AUC(name="auc")]

    def _logits(self, outputs: tf.Tensor) -> tf.Tensor:
        # The sigmoid of x is the softmax of (0, x).
        logit = columns(outputs)
        return tf.concat([tf.zeros_like(logit), logit], axis=1)


class _SecondClassAUC(keras.metrics.AUC):
    """Area under the ROC curve of the second of two probabilities."""

    def update_state(
        self, y_true: tf.Tensor, y_pred: tf.Tensor, sample_weight: tf.Tensor | None = None
    ) -> None:
        super().update_state(y_true, y_pred[:, 1], sample_weight)


@dataclasses.dataclass(frozen=True)
class MultiLabel(Task):
    """Any number of several labels: logits [N, targets], and labels 0 or 1, [N, targets]."""

    meaning = "logits, one for each label"
    answers = ("probabilities",)
    ranking = ("auc",)
    targets: tuple[str, ...]  # Names of the labels, in the order of the outputs.

    @property
    def outputs(self) -> int:
        """Number of labels."""
        return len(self.targets)

    def default_loss(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the binary cross-entropy in nats of each example, float32 [N].

        It is the mean over the example's labels.
        """
        return keras.losses.binary_crossentropy(
            labels, tf.cast(outputs, tf.float32), from_logits=True
        )

    def default_metrics(self) -> list[keras.metrics.Metric]:
        """Returns `accuracy`, the share of correct labels, and `auc`, the mean over the labels."""
        auc = keras.metrics.AUC(name="auc", multi_label=True, num_labels=self.outputs)
        return [keras.metrics.BinaryAccuracy("accuracy"), auc]

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns probabilities, float32 [N, targets]."""
        return tf.sigmoid(tf.cast(outputs, tf.float32))

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """Returns `accuracy`, `loss` (binary cross-entropy in nats), `auc`, and those of `metrics`.

        The answers are probabilities [N, targets]. Accuracy and loss are means over examples and
        labels. `auc` is the mean over the labels that have both values, and is missing if there is
        none.
        """
        probabilities, truth = answers.astype(np.float64), labels == 1
        accuracy = ((probabilities > 0.5) == truth).mean()
        loss = _mean_log_loss(np.where(truth, probabilities, 1 - probabilities))
        auc = _mean_auc(probabilities, labels)
        return {**super().measure(answers, labels), "accuracy": accuracy, "loss": loss, **auc}


@dataclasses.dataclass(frozen=True)
class Regression(Task):
    """One or several numbers, with predictions [N, targets] in the labels' own units.

    Predictions of one target may be [N], and labels are [N] or [N, targets]. The loss is the
    squared error of each target in units of its variance in the training split. So 1 is the loss of
    always predicting the mean, and no target has more weight because of its unit.
    """

    meaning = "numbers, one for each target"
    answers = ("predictions",)
    ranking = ("rmse",)
    targets: tuple[str, ...]  # Names of the targets, in the order of the outputs.
    spreads: tuple[float, ...]  # Standard deviation of each target in the training split.

    @property
    def outputs(self) -> int:
        """Number of targets."""
        return len(self.targets)

    def default_loss(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the squared error in units of the variances, the mean over the targets, [N]."""
        error = columns(outputs) - columns(labels)
        return tf.reduce_mean(tf.square(error / tf.constant(self.spreads)), axis=1)

    def default_metrics(self) -> list[keras.metrics.Metric]:
        """Returns `mae`, `mse` and `rmse`, over examples and targets."""
        metrics = keras.metrics
        return [
            metrics.MeanAbsoluteError("mae"),
            metrics.MeanSquaredError("mse"),
            metrics.RootMeanSquaredError("rmse"),
        ]

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns predictions, float32 [N, targets]."""
        return columns(outputs)

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """Returns `rmse`, `mae`, `mse`, `loss` and `r2`, and those of `metrics`.

        The answers are predictions [N, targets]. `loss` is the mean of `default_loss`. All but `r2`
        are over examples and targets. `r2` is the coefficient of determination, 1 - squared error /
        squared deviation from these labels' mean: the average over the targets that vary, and
        missing if none does. With several targets there is also `rmse_NAME` of each.
        """
        metrics = super().measure(answers, labels)
        labels = labels.reshape(len(labels), -1).astype(np.float64)
        error = answers.astype(np.float64) - labels
        squares = (error**2).mean(axis=0)
        variances = labels.var(axis=0)
        mse = squares.mean()
        loss = (squares / np.square(self.spreads)).mean()
        metrics |= {"rmse": mse**0.5, "mae": np.abs(error).mean(), "mse": mse, "loss": loss}
        varies = variances > 0
        if varies.any():
            metrics["r2"] = (1 - squares[varies] / variances[varies]).mean()
        if self.outputs > 1:
            metrics |= {
                f"rmse_{name}": square**0.5
                for name, square in zip(self.targets, squares, strict=True)
            }
        return metrics


def _mean_log_loss(probabilities: np.ndarray) -> float:
    """Returns the mean cross-entropy in nats.

    Args:
      probabilities: Probabilities of the true values. Those below 1e-7 count as 1e-7.
    """
    return -np.log(np.maximum(probabilities, _MIN_PROBABILITY, dtype=np.float64)).mean()


def _mean_auc(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Returns `auc` by name, the mean over those columns [N, k] whose labels are not all equal.

    The mapping is empty if there is no such column.
    """
    areas = []
    for column, truth in zip(scores.T, labels.T == 1, strict=True):
        positives = truth.sum()
        if 0 < positives < len(truth):
            # The area is the share of pairs of a positive and a negative record in which the
            # positive one has the higher rank; equal scores share the mean of their ranks.
            _, places, counts = np.unique(column, return_inverse=True, return_counts=True)
            ranks = np.cumsum(counts) - (counts - 1) / 2
            won = ranks[places[truth]].sum() - positives * (positives + 1) / 2
            areas.append(won / (positives * (len(truth) - positives)))
    return {"auc": float(np.mean(areas))} if areas else {}
