"""How good a model is on a split: its task's score, by as many replicas as there are.

    scorer = Scorer(build, parts, strategy)
    scorer.score(values, interrupted=lambda: False)     # {"loss": 0.31, "accuracy": 0.9}

Each replica scores its part. The score does not depend on how many they are: their batches are those of one, and what they
find is put together in the split's order. Sums of batches are added exactly.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from trainer.data.parts import Parts
from trainer.data.reader.storage import Columns
from trainer.nn import in_training, weights
from trainer.nn.models.registry import Builder
from trainer.replicas.strategy import replicas_here


class Scorer:
    """Scores models that one function builds, in a model of its own in every process."""

    def __init__(self, build: Builder, parts: Parts, together: tf.distribute.Strategy) -> None:
        """Takes the strategy of the replicas that have the parts of a split; the default one's is one replica."""
        self._build, self._parts, self._strategy = build, parts, together
        self._here = replicas_here(together)
        self._model: keras.Model | None = None
        self._function = tf.function(self._round, reduce_retracing=True, autograph=False)
        self._gather = tf.function(self._gathered, reduce_retracing=True, autograph=False)

    def score(self, values: Mapping[str, np.ndarray], interrupted: Callable[[], bool]) -> dict[str, float] | None:
        """The task's score of a model with these weights.

        All who score together call it with the same weights, and all get it; or None, when `interrupted`, which is asked
        before every batch, says on any of them that there is no time for it.
        """
        if self._model is None:  # not before: a start must not wait for it
            with self._strategy.scope():
                self._model = self._build()
        weights.put(values, self._model)
        found: list[list[tuple[tf.Tensor, ...]]] = [[] for _ in self._here]
        for batch in self._batches():
            parts, stops = self._function(batch, tf.constant(float(interrupted())))
            if stops > 0:
                return None
            local = (self._strategy.experimental_local_results(part) for part in parts)
            for mine, result in zip(found, zip(*local, strict=True), strict=True):
                mine.append(result)
        columns = {
            replica: [_joined(column, self._parts.own(replica)) for column in zip(*mine, strict=True)]
            for replica, mine in zip(self._here, found, strict=True)
        }
        sums, *evidence = (column.numpy() for column in self._gather(self._dealt(columns)))
        means = [math.fsum(column) / self._parts.examples for column in sums.T.tolist()]
        return self._build.task.score(means, evidence)

    def _batches(self) -> Iterable[Columns]:
        """Round by round what the model takes on each replica of this process."""
        batches = zip(*(map(self._build.prepare, self._parts.batches(replica)) for replica in self._here), strict=False)
        return (self._dealt(dict(zip(self._here, batch, strict=True))) for batch in batches)

    def _dealt(self, values: Mapping[int, Any]) -> Any:
        """Values by replica, as the strategy hands them to the replicas of this process."""
        return self._strategy.experimental_distribute_values_from_function(
            lambda where: values[where.replica_id_in_sync_group]
        )

    def _round(self, batch: Columns, wish: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], tf.Tensor]:
        """What each replica here finds in its batch, and how many of all replicas are to stop."""
        stops = self._strategy.reduce("SUM", self._strategy.run(tf.identity, args=(wish,)), axis=None)
        return self._strategy.run(self._sums, args=(batch,)), stops

    def _gathered(self, columns: list[tf.Tensor]) -> list[tf.Tensor]:
        """The columns of all replicas, one behind the other."""
        return [self._strategy.gather(column, axis=0) for column in columns]

    def _sums(self, batch: Columns) -> tuple[tf.Tensor, ...]:
        """The task's sums of a batch, [1, values], and its evidence."""
        features = dict(batch)
        labels = features.pop(self._parts.manifest.label)
        outputs = self._model(features, training=False)
        loss, *metrics = self._build.task.sums(outputs, labels)
        if losses := self._model.losses:
            loss += tf.cast(tf.shape(labels)[0], tf.float32) * in_training.total(losses)
        return tf.stack([[loss, *metrics]]), *self._build.task.evidence(outputs, labels)


def _joined(parts: Sequence[tf.Tensor], own: slice) -> tf.Tensor:
    """Some of the parts one behind the other; nothing, of the form of a part, if they are none."""
    return tf.concat(parts[own], axis=0) if parts[own] else parts[0][:0]
