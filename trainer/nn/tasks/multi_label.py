"""Any number of several labels for each example."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from trainer.base.roc import auc
from trainer.nn.tasks.base import Task, log_losses, mean, probabilities_already


@dataclasses.dataclass(frozen=True)
class MultiLabel(Task):
    """Logits [N, targets], each of a label of its own, and labels 0 or 1 [N, targets]."""

    meaning: ClassVar[str] = "logits, one for each label"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    ranking: ClassVar[tuple[str, ...]] = ("auc",)
    answers: ClassVar[tuple[str, ...]] = ("probabilities",)
    targets: tuple[str, ...]  # names of the labels, in the order of the outputs
    label_smoothing: float = 0.0

    @property
    def outputs(self) -> int:
        """A logit for each label."""
        return len(self.targets)

    def wrong_labels(self, labels: np.ndarray) -> str | None:
        """That they are not 0 and 1, [N, targets]."""
        if labels.ndim == 2 and labels.shape[1] == self.outputs and np.isin(labels, (0, 1)).all():
            return None
        return f"labels are {labels.dtype} {list(labels.shape)}, and those of several labels are 0 or 1, [N, {self.outputs}]"

    def wrong_values(self, outputs: np.ndarray, operation: str) -> str | None:
        """That they are no logits."""
        return super().wrong_values(outputs, operation) or probabilities_already(operation)

    def losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The binary cross-entropy in nats, the mean over an example's labels."""
        logits, labels = tf.cast(outputs, tf.float32), tf.cast(labels, tf.float32)
        if smoothing := self.label_smoothing:
            labels = labels * (1 - smoothing) + smoothing / 2
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits), axis=1)

    def metric_sums(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The share of an example's labels that are right."""
        hits = tf.equal(tf.cast(outputs, tf.float32) > 0, tf.cast(labels, tf.float32) > 0.5)
        return (tf.reduce_sum(tf.cast(hits, tf.float32)) / self.outputs,)

    def evidence(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Logits and labels."""
        return tf.cast(outputs, tf.float32), labels

    def score(self, means: Sequence[float], evidence: Sequence[np.ndarray]) -> dict[str, float]:
        """`loss`, `accuracy`, and `auc`: the mean over those labels that some examples have and some have not."""
        return super().score(means, evidence) | _auc(*evidence)

    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """`probabilities` float32 [N, targets]."""
        return {"probabilities": tf.sigmoid(tf.cast(outputs, tf.float32))}

    def measure(self, answers: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> dict[str, Any]:
        """`accuracy` and `loss` (binary cross-entropy, nats), means over examples and labels, and the mean `auc`."""
        probabilities, truth = answers.astype(np.float64), labels == 1
        accuracy = mean(((probabilities > 0.5) == truth).mean(axis=1), weights)
        loss = mean(log_losses(np.where(truth, probabilities, 1 - probabilities)).mean(axis=1), weights)
        return {"accuracy": accuracy, "loss": loss, **_auc(probabilities, labels, weights)}


def _auc(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> dict[str, Any]:
    areas = [auc(scores[:, i], labels[:, i] == 1, weights) for i in range(scores.shape[1])]
    known = np.array([area for area in areas if area is not None])
    with np.errstate(invalid="ignore"):  # of a sample that defines none
        return {"auc": np.nansum(known, axis=0) / np.isfinite(known).sum(axis=0)} if len(known) else {}
