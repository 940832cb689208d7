"""One of several classes for each example."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from trainer.base.roc import auc
from trainer.nn.tasks.base import Task, log_losses, mean, probabilities_already


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """Logits [N, classes] of any float type, computed with in float32, and integer labels [N]."""

    meaning: ClassVar[str] = "logits, one for each class"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    ranking: ClassVar[tuple[str, ...]] = ("auc", "accuracy")  # of two classes what no threshold decides
    answers: ClassVar[tuple[str, ...]] = ("probabilities", "class_index", "class_name")
    class_names: tuple[str, ...]  # in the order of the labels' values
    label_smoothing: float = 0.0

    @property
    def outputs(self) -> int:
        """A logit for each class."""
        return len(self.class_names)

    def wrong_labels(self, labels: np.ndarray) -> str | None:
        """What is wrong with the labels of a batch, in words."""
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            return f"labels are {labels.dtype} {list(labels.shape)}, and a classification's are integers [N]"
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.class_names):
            return f"labels run from {labels.min()} to {labels.max()}, and there are {len(self.class_names)} classes from 0 on"
        return None

    def wrong_values(self, outputs: np.ndarray, operation: str) -> str | None:
        """That they are no logits."""
        sums = outputs.astype(np.float32).sum(axis=1)
        adds_up = outputs.shape[1] > 1 and (outputs >= 0).all() and np.allclose(sums, 1, atol=1e-3)
        return super().wrong_values(outputs, operation) or probabilities_already(operation, sure=adds_up)

    def losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The cross-entropy in nats; of the smoothed label every class has its part."""
        logits, labels = self._logits(outputs), tf.cast(labels, tf.int64)
        if not self.label_smoothing:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        part = self.label_smoothing / len(self.class_names)
        shares = tf.one_hot(labels, len(self.class_names), on_value=1 - self.label_smoothing + part, off_value=part)
        return tf.nn.softmax_cross_entropy_with_logits(labels=shares, logits=logits)

    def metric_sums(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The examples whose class is the most probable."""
        hits = tf.equal(tf.argmax(self._logits(outputs), axis=1), tf.cast(labels, tf.int64))
        return (tf.reduce_sum(tf.cast(hits, tf.float32)),)

    def evidence(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """By how much the last class leads the first, and the label."""
        logits = self._logits(outputs)
        return logits[:, -1] - logits[:, 0], labels

    def score(self, means: Sequence[float], evidence: Sequence[np.ndarray]) -> dict[str, float]:
        """`loss`, `accuracy`, and of two classes that are both there `auc`."""
        return super().score(means, evidence) | self._auc(*evidence)

    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """`probabilities` float32 [N, classes], `class_index` int64 [N], `class_name` [N]."""
        probabilities = tf.nn.softmax(self._logits(outputs))
        index = tf.argmax(probabilities, axis=1)
        names = tf.gather(tf.constant(self.class_names), index)
        return {"probabilities": probabilities, "class_index": index, "class_name": names}

    def measure(self, answers: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> dict[str, Any]:
        """`accuracy`, `loss` (mean cross-entropy, nats), and of two classes that are both there `auc`."""
        accuracy = mean(answers.argmax(axis=1) == labels, weights)
        loss = mean(log_losses(answers[np.arange(len(labels)), labels]), weights)
        return {"accuracy": accuracy, "loss": loss, **self._auc(answers[:, -1], labels, weights)}

    def _logits(self, outputs: tf.Tensor) -> tf.Tensor:
        return tf.cast(outputs, tf.float32)

    def _auc(self, scores: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> dict[str, Any]:
        area = auc(scores, labels == 1, weights) if len(self.class_names) == 2 else None
        return {} if area is None else {"auc": area}


class Binary(Classification):
    """Two classes, and one logit [N, 1] or [N] of the second; clients get what they get of two logits."""

    meaning: ClassVar[str] = "the logit of the second of two classes"
    outputs = 1

    def _logits(self, outputs: tf.Tensor) -> tf.Tensor:
        # The sigmoid of x is the softmax of (0, x).
        logit = tf.reshape(tf.cast(outputs, tf.float32), [-1, 1])
        return tf.concat([tf.zeros_like(logit), logit], axis=1)
