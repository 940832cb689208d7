"""Many training steps a call, with no Python between them.

`SyncSteps` runs the replicas of one device or of all-reduce workers in lock step; `AsyncSteps` hands calls to the
workers of a parameter-server job. Both advance from a step towards a limit and say what they saw:

    window = steps.run(step, until=500, stop=False)
    step += window.steps

How many steps make a call follows from their speed, so that a call takes about half a second: long enough for
Python to cost nothing, short enough to stop in time.
"""

import collections
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainer.cluster import collectives
from trainer.data.example_weights import WEIGHT
from trainer.data.order import share
from trainer.data.reader import Reader
from trainer.data.storage import Columns
from trainer.nn import randomness
from trainer.tasks.task import Task

_CALL_S = 0.5
# Only the loops over steps are written for AutoGraph; rewriting all the rest as well took half of the time of tracing.
_as_it_stands = tf.autograph.experimental.do_not_convert


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """What some steps did."""

    steps: int
    sums: tuple[float, ...]  # over the steps: the loss, the mean over its batch, and the states of the task's metrics
    seconds: float
    warm: bool  # whether this was ordinary training; the first call also traces and compiles
    stop: bool  # whether any replica was told to stop; all of them see it at the same step


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainStep:
    """One step of one replica on its share of the batch: differentiate, update."""

    model: keras.Model
    optimizer: keras.optimizers.Optimizer
    task: Task
    label: str
    global_batch: int  # examples over all replicas: the loss is divided by it, the gradients are summed
    seed: int  # of dropout
    weight_decay: float = 0.0  # times half the sum of squares of the decayed weights, added to what is minimised
    decayed: Sequence[keras.Variable] = ()
    jit_compile: bool = False  # whether XLA compiles what is between the batch and the gradients

    def __call__(self, batch: Columns, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
        """Runs in a replica context, on the examples `first` to `first + count` of the global batch.

        Returns this replica's share of the loss and of the states of the task's metrics, [values]: over the replicas they add
        up to the mean over the global batch, and to its states.
        """
        values, gradients = self._differentiate(batch, step, first, count)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return values

    def differentiate(
        self, batch: Columns, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor | tf.IndexedSlices | None]]:
        """These values, and this replica's part of the gradients of the trainable variables, scaled for the optimizer."""
        features = dict(batch)
        labels, weights = features.pop(self.label), features.pop(WEIGHT, None)
        part = tf.cast(count, tf.float32) / self.global_batch
        with (
            tf.GradientTape() as tape,
            randomness.deterministic_context(seed=self.seed, step=step, first=first) as added,
        ):
            outputs = self.model(features, training=True)
            loss, valid = self.task.loss_sum(outputs, labels, weights)
            divisor = self.global_batch if valid is None else collectives.sum_over_replicas(valid)
            loss = tf.math.divide_no_nan(loss, divisor)
            # Layers add means over this replica's examples, regularisers what counts once: over all replicas, by their parts.
            if own := [*added, *randomness.regularization(self.model)]:
                loss += part * randomness.total(own)
            objective = loss
            if self.weight_decay:
                objective += part * self.weight_decay * tf.add_n([tf.nn.l2_loss(w.value) for w in self.decayed])
            objective = self.optimizer.scale_loss(objective)
        states = self.task.states(outputs, labels, weights)
        return tf.concat([[loss], *states], 0), tape.gradient(objective, self.model.trainable_variables)

    @functools.cached_property
    def _differentiate(self) -> Callable[..., tuple[tf.Tensor, list[tf.Tensor | tf.IndexedSlices | None]]]:
        if not self.jit_compile:
            return self.differentiate
        compiled = tf.function(lambda *arguments: self.differentiate(*arguments), jit_compile=True, autograph=False)
        # The position as a tensor, or each replica's would be compiled apart; the count is to be a static shape where it can.
        return lambda batch, step, first, count: compiled(batch, step, tf.cast(first, tf.int32), count)

    @property
    def values(self) -> int:
        """How many a step returns."""
        return 1 + self.task.num_states


class SyncSteps:
    """Steps of all replicas together. Every process makes the same calls."""

    idle = True  # whether the state may be saved now: nothing is ever under way between calls

    def __init__(
        self, strategy: tf.distribute.Strategy, step: TrainStep, reader: Reader, chief: bool, first_step: int = 0
    ) -> None:
        self._strategy, self._step, self._reader, self._chief = strategy, step, reader, chief
        self._next_step = first_step
        self._source = self._batches() if reader.ahead else self._copies()
        self._steps_a_call = 1
        self._step_s: float | None = None
        self._function, self._agreement = tf.function(self._call), tf.function(self._total)
        # The first call would make the graph otherwise; no other replica is needed for it.
        scalar = tf.TensorSpec([], tf.int64)
        self._function.get_concrete_function(
            self._source, scalar, tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.float32)
        )

    def run(self, step: int, until: int, stop: bool, settle: bool = False) -> Window:
        """Advances by some steps, not beyond `until`. `stop` is this process's wish; it is settled after every call."""
        steps = min(self._steps_a_call, until - step)
        proposal = min(4.0 * self._steps_a_call, _CALL_S / (self._step_s or _CALL_S)) if self._chief else 0.0
        wish = tf.constant([float(stop), proposal], tf.float32)
        if self._reader.ahead and step != self._next_step:
            self._next_step = step
            self._source = self._batches()
        start = time.perf_counter()
        try:
            arguments = (self._source, tf.constant(step, tf.int64), tf.constant(steps), wish)
            *sums, stops, proposal = self._function(*arguments).numpy().tolist()
        except tf.errors.OpError:
            if failure := self._reader.failure():
                raise failure from None
            raise
        self._next_step = step + steps
        seconds = time.perf_counter() - start
        warm = self._step_s is not None
        # The first call compiles, so its time says little; 0.1 s a step lets the next calls find out.
        self._step_s = seconds / steps if warm else 0.1
        # All processes must make calls of one length, and each sees another clock: they take the chief's.
        self._steps_a_call = max(1, round(proposal))
        return Window(steps=steps, sums=tuple(sums), seconds=seconds, warm=warm, stop=stops > 0)

    def agree(self, wish: bool) -> bool:
        """Whether any process wishes it. All must ask at the same step."""
        return float(self._agreement(tf.constant(float(wish)))) > 0

    def _batches(self) -> tf.distribute.DistributedIterator:
        """Those of this process's replicas from the next step on, made in threads ahead of their steps."""
        return iter(
            self._strategy.distribute_datasets_from_function(lambda where: self._reader.dataset(self._next_step, where))
        )

    def _copies(self) -> Any:
        """The split on every device of this process: from one of them it would be sent to the others in every step."""
        with tf.device("CPU:0"):
            loaded = self._reader.load()
        devices = self._strategy.extended.worker_devices

        def copy(replica: tf.distribute.experimental.ValueContext) -> Any:
            with tf.device(devices[replica.replica_id_in_sync_group % len(devices)]):
                return tf.nest.map_structure(tf.identity, loaded)

        return self._strategy.experimental_distribute_values_from_function(copy)

    def _call(self, source, step: tf.Tensor, steps: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
        totals = tf.zeros([self._step.values])
        for i in tf.range(steps):
            held = next(source) if self._reader.ahead else source
            results = self._strategy.run(self._replica, args=(held, step + tf.cast(i, tf.int64)))
            totals += tf.add_n(self._strategy.experimental_local_results(results))
        # One reduction a call carries the sums and what every process wishes.
        return self._total(tf.concat([totals, wish], 0))

    def _total(self, mine: tf.Tensor) -> tf.Tensor:
        """The sum of it over all processes."""
        # `run` hands the same to each replica of this process, so each brings its part.
        part = mine / len(self._strategy.extended.worker_devices)
        return self._strategy.reduce("SUM", self._strategy.run(tf.identity, args=(part,)), axis=None)

    @_as_it_stands
    def _replica(self, held, step: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context()
        part = share(
            replica.replica_id_in_sync_group,
            replicas=replica.num_replicas_in_sync,
            global_batch=self._reader.global_batch,
        )
        batch = held if self._reader.ahead else self._reader.batch(held, step, *part)
        return self._step(batch, step, *part)


class AsyncSteps:
    """Steps of a parameter-server job, scheduled by the chief on whichever worker is free.

    The step number is an argument of the scheduled call, so a call repeated after a worker died sees the same batch.
    """

    def __init__(
        self, coordinator: tf.distribute.coordinator.ClusterCoordinator, step: TrainStep, reader: Reader, workers: int
    ) -> None:
        self._coordinator, self._strategy, self._step, self._workers = coordinator, coordinator.strategy, step, workers
        self._reader = reader
        # The data is held by each worker: a dataset that yields the same tensors again and again copies nothing.
        self._held = iter(
            coordinator.create_per_worker_dataset(lambda: tf.data.Dataset.from_tensors(reader.load()).repeat())
        )
        self._function = tf.function(self._call)
        self._under_way: collections.deque[tuple[int, tf.distribute.coordinator.RemoteValue]] = collections.deque()
        self._scheduled = 0
        self._steps_a_call = 1
        self._fetched = 0
        self._last_s = time.perf_counter()

    def agree(self, wish: bool) -> bool:
        """The wish, which is the chief's alone: nobody else trains of himself."""
        return wish

    @property
    def idle(self) -> bool:
        """Whether the state may be saved now: every scheduled call has been waited for."""
        return not self._under_way

    def run(self, step: int, until: int, stop: bool, settle: bool = False) -> Window:
        """Schedules calls towards `until` and waits for the oldest; with `settle`, adds none to those under way."""
        if self.idle:
            self._scheduled, self._last_s = step, time.perf_counter()
        # Two calls a worker keep all busy; more would only delay a stop.
        while self._scheduled < until and len(self._under_way) < (1 if settle else 2 * self._workers):
            steps = min(self._steps_a_call, until - self._scheduled)
            arguments = (self._held, tf.constant(self._scheduled, tf.int64), tf.constant(steps))
            self._under_way.append((steps, self._coordinator.schedule(self._function, args=arguments)))
            self._scheduled += steps
        steps, result = self._under_way.popleft()
        sums = tuple(result.fetch().tolist())
        now = time.perf_counter()
        seconds, self._last_s = now - self._last_s, now
        self._fetched += 1
        warm = self._fetched > 2 * self._workers  # until then some worker may still be tracing
        if warm:
            rate = steps / seconds / self._workers
            self._steps_a_call = max(1, min(4 * self._steps_a_call, round(_CALL_S * rate)))
        return Window(steps=steps, sums=sums, seconds=seconds, warm=warm, stop=stop)

    def _call(self, source, step: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        held = next(source)
        totals = tf.zeros([self._step.values])
        for i in tf.range(steps):
            totals += self._strategy.run(self._one, args=(held, step + tf.cast(i, tf.int64)))
        return totals

    @_as_it_stands
    def _one(self, held, step: tf.Tensor) -> tf.Tensor:
        whole = (0, self._reader.global_batch)
        return self._step(self._reader.batch(held, step, *whole), step, *whole)
