"""Any number of several labels for each example."""

import dataclasses
import functools
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from trainer.tasks.task import Task, log_losses, mean_auc, probabilities_already


@dataclasses.dataclass(frozen=True)
class MultiLabel(Task):
    """Logits [N, targets], each of a label of its own, and labels 0 or 1 [N, targets]."""

    meaning: ClassVar[str] = "logits, one for each label"
    ranking: ClassVar[tuple[str, ...]] = ("auc",)
    answers: ClassVar[tuple[str, ...]] = ("probabilities",)
    targets: tuple[str, ...]  # names of the labels, in the order of the outputs

    @property
    def outputs(self) -> int:
        """A logit for each label."""
        return len(self.targets)

    num_aucs = outputs

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
        return keras.losses.binary_crossentropy(labels, tf.cast(outputs, tf.float32), from_logits=True)

    @functools.cached_property
    def metrics(self) -> list[keras.metrics.Metric]:
        """`accuracy`, the share of labels that are right."""
        return [keras.metrics.BinaryAccuracy("accuracy")]

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Probabilities, float32 [N, targets]."""
        return tf.sigmoid(tf.cast(outputs, tf.float32))

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """`accuracy` and `loss` (binary cross-entropy, nats), means over examples and labels, and the mean `auc`."""
        probabilities, truth = answers.astype(np.float64), labels == 1
        accuracy = ((probabilities > 0.5) == truth).mean()
        loss = log_losses(np.where(truth, probabilities, 1 - probabilities)).mean()
        return {"accuracy": accuracy, "loss": loss, **mean_auc(probabilities, labels)}
