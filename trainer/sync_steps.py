"""Steps of one device or of all-reduce workers in lock step, many a call, with no Python between them.

window = steps.run(step, until=500, stop=False)
step += window.steps
"""

import time
from typing import Any

import tensorflow as tf

from trainer.data.order import share
from trainer.data.reader import Reader
from trainer.train_step import CALL_S, TrainStep, Window


class SyncSteps:
    """Steps of all replicas together. Every process makes the same calls."""

    idle = True  # whether the state may be saved now: nothing is ever under way between calls

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        step: TrainStep,
        reader: Reader,
        chief: bool,
        first_step: int = 0,
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

    def run(self, step: int, until: int, stop: bool, drain: bool = False) -> Window:
        """Advances by some steps, not beyond `until`. `stop` is this process's wish; all agree after every call."""
        steps = min(self._steps_a_call, until - step)
        proposal = (
            min(4.0 * self._steps_a_call, CALL_S / (self._step_s or CALL_S)) if self._chief else 0.0
        )
        wish = tf.constant([float(stop), proposal], tf.float32)
        if self._reader.ahead and step != self._next_step:
            self._next_step = step
            self._source = self._batches()
        start = time.perf_counter()
        arguments = (self._source, tf.constant(step, tf.int64), tf.constant(steps), wish)
        *sums, stops, proposal = self._function(*arguments).numpy().tolist()
        self._next_step = step + steps
        seconds = time.perf_counter() - start
        warm = self._step_s is not None
        # The first call compiles, so its time says little; 0.1 s a step lets the next calls find
        # out.
        self._step_s = seconds / steps if warm else 0.1
        # All processes must make calls of one length, and each sees another clock: they take the
        # chief's.
        self._steps_a_call = max(1, round(proposal))
        return Window(steps=steps, sums=tuple(sums), seconds=seconds, warm=warm, stop=stops > 0)

    def agree(self, wish: bool) -> bool:
        """Returns whether any process wishes it. All must ask at the same step."""
        return float(self._agreement(tf.constant(float(wish)))) > 0

    def _batches(self) -> tf.distribute.DistributedIterator:
        """Returns the batches of this process's replicas from the next step on, made in threads ahead of their steps."""
        return iter(
            self._strategy.distribute_datasets_from_function(
                lambda where: self._reader.dataset(self._next_step, where)
            )
        )

    def _copies(self) -> Any:
        """Returns the split on every device of this process: from one it would be sent to the others in every step."""
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
            loaded = next(source) if self._reader.ahead else source
            results = self._strategy.run(self._replica, args=(loaded, step + tf.cast(i, tf.int64)))
            totals += tf.add_n(self._strategy.experimental_local_results(results))
        # One reduction a call carries the sums and what every process wishes.
        return self._total(tf.concat([totals, wish], 0))

    def _total(self, mine: tf.Tensor) -> tf.Tensor:
        """Returns the sum over all processes."""
        # `run` hands the same to each replica of this process, so each brings its part.
        part = mine / len(self._strategy.extended.worker_devices)
        return self._strategy.reduce(
            "SUM", self._strategy.run(tf.identity, args=(part,)), axis=None
        )

    # Only the loop over steps is written for AutoGraph; rewriting the rest too takes half of the
    # time of tracing.
    @tf.autograph.experimental.do_not_convert
    def _replica(self, loaded, step: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context()
        part = share(
            replica.replica_id_in_sync_group,
            replicas=replica.num_replicas_in_sync,
            global_batch=self._reader.global_batch,
        )
        batch = loaded if self._reader.ahead else self._reader.batch(loaded, step, *part)
        return self._step(batch, step, *part)
