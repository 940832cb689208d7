"""One of several classes for each example."""

import dataclasses
import functools
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from trainer.tasks.task import Task, log_losses, mean_auc, probabilities_already


@dataclasses.dataclass(frozen=True)
class Classification(Task):
    """Logits [N, classes] of any float type, computed with in float32, and integer labels [N]."""

    meaning: ClassVar[str] = "logits, one for each class"
    ranking: ClassVar[tuple[str, ...]] = ("auc", "accuracy")  # of two classes what no threshold decides
    answers: ClassVar[tuple[str, ...]] = ("probabilities", "class_index", "class_name")
    class_names: tuple[str, ...]  # in the order of the labels' values

    @property
    def outputs(self) -> int:
        """A logit for each class."""
        return len(self.class_names)

    @property
    def num_aucs(self) -> int:
        """1, by the second of two classes; 0 of more classes."""
        return int(len(self.class_names) == 2)

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
        """Returns the cross-entropy in nats."""
        classes = tf.one_hot(labels, len(self.class_names))
        return keras.losses.categorical_crossentropy(classes, self._logits(outputs), from_logits=True)

    @functools.cached_property
    def metrics(self) -> list[keras.metrics.Metric]:
        """`accuracy`, by the class that is the most probable."""
        return [keras.metrics.SparseCategoricalAccuracy("accuracy")]

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Probabilities, float32 [N, classes]."""
        return tf.nn.softmax(self._logits(outputs))

    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """`probabilities` float32 [N, classes], `class_index` int64 [N], `class_name` [N]."""
        probabilities = self.predictions(outputs)
        index = tf.argmax(probabilities, axis=1)
        names = tf.gather(tf.constant(self.class_names), index)
        return {"probabilities": probabilities, "class_index": index, "class_name": names}

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """`accuracy`, `loss` (mean cross-entropy, nats), and of two classes that are both there `auc`."""
        accuracy = (answers.argmax(axis=1) == labels).mean()
        loss = log_losses(answers[np.arange(len(labels)), labels]).mean()
        auc = mean_auc(answers[:, -1:], labels[:, np.newaxis]) if self.num_aucs else {}
        return {"accuracy": accuracy, "loss": loss, **auc}

    def _logits(self, outputs: tf.Tensor) -> tf.Tensor:
        return tf.cast(outputs, tf.float32)


class Binary(Classification):
    """Two classes, and one logit [N, 1] or [N] of the second; clients get what they get of two logits."""

    meaning: ClassVar[str] = "the logit of the second of two classes"
    outputs = 1

    @functools.cached_property
    def metrics(self) -> list[keras.metrics.Metric]:
        """`accuracy`, by a probability of one half."""
        return [keras.metrics.BinaryAccuracy("accuracy")]

    def _logits(self, outputs: tf.Tensor) -> tf.Tensor:
        # The sigmoid of x is the softmax of (0, x).
        logit = tf.reshape(tf.cast(outputs, tf.float32), [-1, 1])
        return tf.concat([tf.zeros_like(logit), logit], axis=1)
