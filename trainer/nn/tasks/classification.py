"""One of several classes for each example: what a model's outputs mean, and all that is computed of them.

    task = Classification(manifest.class_names)
    task.sums(logits, labels)      # in a step: what training shows
    task.score(sums, evidence)     # of a whole split: what validation shows, and by which `rank` chooses
    task.answer(logits)            # what the exported model says

Training, validation and export know a task only by these, so that another kind of task is another such file.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from trainer.base.roc import auc


@dataclasses.dataclass(frozen=True)
class Classification:
    """Logits [N, classes] of any float type, computed with in float32, and integer labels [N].

    Attributes:
      metrics: Names of what `sums` has beside the loss; each is a mean over examples when divided by their number.
      class_names: In the order of the labels' values.
    """

    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    class_names: tuple[str, ...]

    def sums(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Summed over the examples: the cross-entropy in nats, then each of `metrics`; float32 [1 + metrics]."""
        logits, labels = tf.cast(logits, tf.float32), tf.cast(labels, tf.int64)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
        hits = tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32)
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(hits)])

    def evidence(self, logits: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """What of each example a score needs beside the sums: by how much the last class leads the first, and the label."""
        return tf.cast(logits[:, -1] - logits[:, 0], tf.float32), labels

    def score(self, means: Sequence[float], evidence: Sequence[tuple[tf.Tensor, tf.Tensor]]) -> dict[str, float]:
        """Of a split: `loss` and `metrics`, the means of what `sums` has; of two classes that are both there also `auc`.

        Args:
          means: Over the examples of the split.
          evidence: Of its batches.
        """
        found = dict(zip(("loss", *self.metrics), means, strict=True))
        if len(self.class_names) == 2:
            leads, labels = (np.concatenate(parts) for parts in zip(*evidence, strict=True))
            found["auc"] = auc(leads, labels == 1)
        return {name: value for name, value in found.items() if value is not None}

    def rank(self, score: Mapping[str, Any]) -> tuple[float, float]:
        """What makes one score better than another: of two classes the AUC, which no threshold decides; else accuracy."""
        return score.get("auc", score["accuracy"]), -score["loss"]

    def answer(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """What a client gets: `probabilities` float32 [N, classes], `class_index` int64 [N], `class_name` [N]."""
        probabilities = tf.nn.softmax(tf.cast(logits, tf.float32))
        index = tf.argmax(probabilities, axis=1)
        names = tf.gather(tf.constant(self.class_names), index)
        return {"probabilities": probabilities, "class_index": index, "class_name": names}
