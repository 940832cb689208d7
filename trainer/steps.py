"""Many training steps a call, with no Python between them.

`SyncSteps` runs the replicas of one device or of all-reduce workers in lock step; `AsyncSteps` hands calls to the
workers of a parameter-server job. Both advance from a step towards a limit and say what they saw:

    window = steps.run(step, until=500, stop=False)
    step += window.steps

How many steps make a call follows from their speed, so that a call takes about half a second: long enough for
Python to cost nothing, short enough to stop in time.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Sequence

import keras
import tensorflow as tf

from trainer import augment, records, stepping

_CALL_S = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """What some steps did.

    Attributes:
      steps: How many.
      loss: Summed over the steps, each the mean over its batch.
      correct: Examples classified right.
      seconds: Wall time.
      warm: Whether this was ordinary training; the first call also traces and compiles.
      stop: Whether any replica was told to stop; all of them see it at the same step.
    """

    steps: int
    loss: float
    correct: float
    seconds: float
    warm: bool
    stop: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainStep:
    """One step of one replica: gather a share of the batch, differentiate, update.

    Attributes:
      model: From features by name to logits.
      label: Name of the label's column.
      examples: In the training split.
      global_batch: Examples of one step over all replicas; the loss is divided by it, the gradients are summed.
      seed: Of sample order, augmentation and dropout.
      augment: Of `options.AUGMENTATIONS`.
      weight_decay: Times half the sum of squares of `decayed`, added to what is minimised.
      decayed: Weights.
    """

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    label: str
    examples: int
    global_batch: int
    seed: int
    augment: str = "none"
    weight_decay: float = 0.0
    decayed: Sequence[keras.Variable] = ()

    def __call__(self, columns: records.Columns, step: tf.Tensor) -> tf.Tensor:
        """Runs in a replica context. Returns [loss, correct]: this replica's share of the sums."""
        replica = tf.distribute.get_replica_context()
        first, count = records.share(
            replica.replica_id_in_sync_group, replicas=replica.num_replicas_in_sync, global_batch=self.global_batch
        )
        indices = records.order(
            step, seed=self.seed, examples=self.examples, global_batch=self.global_batch, first=first, count=count
        )
        features = {name: tf.gather(column, indices) for name, column in columns.items()}
        labels = features.pop(self.label)
        if self.augment == "crop_flip":
            positions = tf.cast(first, tf.int64) + tf.range(count, dtype=tf.int64)
            images = augment.crop_and_flip(features["image"], seed=self.seed, step=step, positions=positions)
            features["image"] = images
        with tf.GradientTape() as tape, stepping.at(seed=self.seed, step=step, first=first):
            logits = self.model(features, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = objective = tf.reduce_sum(losses) / self.global_batch
            if self.weight_decay:
                penalty = self.weight_decay * tf.add_n([tf.nn.l2_loss(w.value) for w in self.decayed])
                objective += penalty * tf.cast(count, tf.float32) / self.global_batch  # once over all replicas
        weights = self.model.trainable_variables
        self.optimizer.apply(tape.gradient(objective, weights), weights)
        correct = tf.reduce_sum(tf.cast(tf.equal(tf.argmax(logits, axis=1), labels), tf.float32))
        return tf.stack([loss, correct])


class SyncSteps:
    """Steps of all replicas together. Every process makes the same calls."""

    def __init__(
        self, strategy: tf.distribute.Strategy, step: TrainStep, columns: records.Columns, chief: bool
    ) -> None:
        self._strategy, self._step, self._columns, self._chief = strategy, step, columns, chief
        self._steps_a_call = 1
        self._step_s: float | None = None
        self._function = tf.function(self._call)

    def run(self, step: int, until: int, stop: bool) -> Window:
        """Advances by some steps, not beyond `until`. `stop` is this process's wish."""
        steps = min(self._steps_a_call, until - step)
        wish = tf.constant([float(stop), self._proposal()], tf.float32)
        start = time.perf_counter()
        loss, correct, stops, proposal = self._function(tf.constant(step, tf.int64), tf.constant(steps), wish).numpy()
        seconds = time.perf_counter() - start
        warm = self._step_s is not None
        # The first call compiles, so its time says little; 0.1 s a step lets the next calls find out.
        self._step_s = seconds / steps if warm else 0.1
        # All processes must make calls of one length, and each sees another clock: they take the chief's.
        self._steps_a_call = max(1, round(float(proposal)))
        return Window(
            steps=steps, loss=float(loss), correct=float(correct), seconds=seconds, warm=warm, stop=bool(stops > 0)
        )

    def _proposal(self) -> float:
        return min(4.0 * self._steps_a_call, _CALL_S / (self._step_s or _CALL_S)) if self._chief else 0.0

    def _call(self, step: tf.Tensor, steps: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
        totals = tf.zeros([2])
        for i in tf.range(steps):
            results = self._strategy.run(self._step, args=(self._columns, step + tf.cast(i, tf.int64)))
            totals += tf.add_n(self._strategy.experimental_local_results(results))
        # One reduction a call carries the sums and what every process wishes. `run` hands the same vector to each
        # replica of this process, so each brings its part of it.
        mine = tf.concat([totals, wish], 0) / len(self._strategy.extended.worker_devices)
        return self._strategy.reduce("SUM", self._strategy.run(tf.identity, args=(mine,)), axis=None)

    @property
    def idle(self) -> bool:
        """Whether the state may be saved now: nothing is ever under way between calls."""
        return True


class AsyncSteps:
    """Steps of a parameter-server job, scheduled by the chief on whichever worker is free.

    The step number is an argument of the scheduled call, so a call repeated after a worker died sees the same batch.
    """

    def __init__(
        self, coordinator: tf.distribute.coordinator.ClusterCoordinator, step: TrainStep, columns, workers: int
    ) -> None:
        self._coordinator, self._strategy, self._step, self._workers = coordinator, coordinator.strategy, step, workers
        # The data is resident in each worker: a dataset that yields the same tensors again and again copies nothing.
        self._columns = iter(
            coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(columns()).repeat())
        )
        self._function = tf.function(self._call)
        self._under_way: collections.deque[tuple[int, tf.distribute.coordinator.RemoteValue]] = collections.deque()
        self._scheduled = 0
        self._steps_a_call = 1
        self._fetched = 0
        self._last_s = time.perf_counter()

    @property
    def idle(self) -> bool:
        """Whether the state may be saved now: every scheduled call has been waited for."""
        return not self._under_way

    def run(self, step: int, until: int, stop: bool) -> Window:
        """Schedules calls towards `until` and waits for the oldest; with `stop`, adds none to those under way."""
        if self.idle:
            self._scheduled, self._last_s = step, time.perf_counter()
        # Two calls a worker keep all busy; more would only delay a stop.
        while self._scheduled < until and len(self._under_way) < (1 if stop else 2 * self._workers):
            steps = min(self._steps_a_call, until - self._scheduled)
            arguments = (self._columns, tf.constant(self._scheduled, tf.int64), tf.constant(steps))
            self._under_way.append((steps, self._coordinator.schedule(self._function, args=arguments)))
            self._scheduled += steps
        steps, result = self._under_way.popleft()
        loss, correct = result.fetch()
        now = time.perf_counter()
        seconds, self._last_s = now - self._last_s, now
        self._fetched += 1
        warm = self._fetched > 2 * self._workers  # until then some worker may still be tracing
        if warm:
            rate = steps / seconds / self._workers
            self._steps_a_call = max(1, min(4 * self._steps_a_call, round(_CALL_S * rate)))
        return Window(steps=steps, loss=float(loss), correct=float(correct), seconds=seconds, warm=warm, stop=stop)

    def _call(self, columns, step: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        resident = next(columns)
        totals = tf.zeros([2])
        for i in tf.range(steps):
            totals += self._strategy.run(self._step, args=(resident, step + tf.cast(i, tf.int64)))
        return totals
