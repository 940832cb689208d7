"""How good a model is on a split: its task's score, by as many replicas as there are.

    scorer = Scorer(build, manifest, "data/mnist", "validation", batch_size=500, together=strategy)
    scorer.score(values, interrupted=lambda: False)     # {"loss": 0.31, "accuracy": 0.9}

Each replica scores its part. The score does not depend on how many they are: their batches are those of one, and the states of
batches are added exactly.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from common.manifest import Manifest
from trainer.data import records
from trainer.data.features import Columns
from trainer.data.order import share
from trainer.models.registry import Builder
from trainer.nn import randomness, weights


class Scorer:
    """Scores models that one function builds, in a model of its own in every process."""

    def __init__(
        self,
        build: Builder,
        manifest: Manifest,
        data_dir: str,
        split: str,
        *,
        batch_size: int,
        together: tf.distribute.Strategy,
    ) -> None:
        """Takes the strategy of the replicas that have the parts of a split; the default one's is one replica."""
        self._build, self._manifest, self._strategy = build, manifest, together
        self._split = manifest, data_dir, split, batch_size
        self._examples = manifest.split(split).examples
        self._rounds = math.ceil(self._examples / (batch_size * together.num_replicas_in_sync))
        self._model: keras.Model | None = None
        self._function = tf.function(self._round, reduce_retracing=True, autograph=False)

    def score(self, values: Mapping[str, np.ndarray], interrupted: Callable[[], bool]) -> dict[str, float] | None:
        """The task's score of a model with these weights.

        All who score together call it with the same weights, and all get it; or None, when `interrupted`, which is asked
        before every batch, says on any of them that there is no time for it.
        """
        if self._model is None:  # not before: a start must not wait for it
            with self._strategy.scope():
                self._model = self._build()
        weights.put(values, self._model)
        rounds = []
        for batch, counts in self._batches():
            sums = self._function(batch, counts, tf.constant([float(interrupted())])).numpy()
            if sums[:, 0].any():
                return None
            rounds.append(sums)
        _, loss, *states = map(math.fsum, np.concatenate(rounds).T.tolist())
        return {"loss": loss / self._examples, **self._build.task.results(states)}

    def _batches(self) -> Iterator[tuple[Columns, tf.Tensor]]:
        """Round by round what the model takes on each replica of this process, and whether it counts there."""
        replicas = self._strategy.num_replicas_in_sync
        read = [replica_batches(*self._split, replica=replica, replicas=replicas) for replica in range(replicas)]

        def take(where: tf.distribute.experimental.ValueContext) -> tuple[Columns, tf.Tensor]:
            batch, counts = next(read[where.replica_id_in_sync_group])
            return self._build.prepare(batch), tf.constant(counts)

        for _ in range(self._rounds):
            yield self._strategy.experimental_distribute_values_from_function(take)

    def _round(self, batch: Columns, counts: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
        """Returns the sums of all replicas, [replicas, values]."""
        return self._strategy.gather(self._strategy.run(self._part, args=(batch, counts, wish)), axis=0)

    def _part(self, batch: Columns, counts: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
        """Returns the wish to stop, the loss and the states of the metrics, [1, values]; 0 of a batch that does not count."""
        task = self._build.task
        features = dict(batch)
        labels = features.pop(self._manifest.label)
        outputs = self._model(features, training=False)
        loss, valid = task.loss_sum(labels, outputs)
        examples = tf.cast(tf.shape(labels)[0], tf.float32)
        if valid is not None:
            loss *= tf.math.divide_no_nan(examples, valid)
        if losses := self._model.losses:
            loss += examples * randomness.total(losses)
        sums = tf.concat([[loss], *task.states(labels, outputs)], 0)
        return tf.concat([wish, tf.where(counts, sums, 0.0)], 0)[tf.newaxis]


def replica_batches(
    manifest: Manifest, data_dir: str, split: str, batch_size: int, *, replica: int, replicas: int
) -> Iterator[tuple[Columns, bool]]:
    """Yields as many batches for each replica, and whether each counts there.

    Batches are those of the whole split, on however many replicas. All replicas take part in every round, since they agree
    in each whether to go on; so one whose part is a batch shorter is given a neighbour's too, which does not count.
    """
    examples = manifest.split(split).examples
    count = -(-examples // batch_size)
    first, own = share(replica, replicas=replicas, global_batch=count)
    rounds = -(-count // replicas)
    start = min(first, count - rounds)
    stop = min((start + rounds) * batch_size, examples)
    read = records.batches(manifest, data_dir, split, batch_size, start=start * batch_size, stop=stop)
    for position, columns in enumerate(read, start):
        yield columns, first <= position < first + own
