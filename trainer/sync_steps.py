"""Steps of one device, or of all-reduce workers in lock step, with several steps in a call.

    window = steps.run(step, until=500, stop=False)
    step += window.steps

No Python runs between the steps of a call.
"""

import time
from typing import Any

import tensorflow as tf

from trainer.data.order import share
from trainer.data.reader import Reader
from trainer.train_step import CALL_S, TrainStep, Window


class SyncSteps:
    """Steps of all replicas together. Every process must make the same calls."""

    idle = True  # The state may be saved after any call, as nothing is under way then.

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
        # Tracing needs no other replica, so it is done here and not in the first call, in which
        # replicas wait for each other.
        scalar = tf.TensorSpec([], tf.int64)
        self._function.get_concrete_function(
            self._source, scalar, tf.TensorSpec([], tf.int32), tf.TensorSpec([2], tf.float32)
        )

    def run(self, step: int, until: int, stop: bool, drain: bool = False) -> Window:
        """Makes some steps, at least one, and otherwise as many as take about half a second.

        Args:
          step: Global step of the state.
          until: Step that is not passed, greater than `step`.
          stop: Whether this process wishes to stop; the result says if any process does.
          drain: Ignored; a call leaves nothing under way.

        Returns:
          The result, the same on all processes but for the times.

        Raises:
          tf.errors.OpError: If another process is lost.
        """
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
        # The first call also compiles, so its time says little. With a guess of 0.1 s per step the
        # next calls are short, and measure the time.
        self._step_s = seconds / steps if warm else 0.1
        # All processes must make calls of the same length, and
        # their clocks differ, so they use the chief's proposal.
        self._steps_a_call = max(1, round(proposal))
        return Window(steps=steps, sums=tuple(sums), seconds=seconds, warm=warm, stop=stops > 0)

    def agree(self, wish: bool) -> bool:
        """Returns whether any process has the wish. All processes must call it at the same step.

        Raises:
          tf.errors.OpError: If another process is lost.
        """
        return float(self._agreement(tf.constant(float(wish)))) > 0

    def _batches(self) -> tf.distribute.DistributedIterator:
        """Returns the batches of this process's replicas from the next step on.

        Threads make them ahead of their steps.
        """
        return iter(
            self._strategy.distribute_datasets_from_function(
                lambda where: self._reader.dataset(self._next_step, where)
            )
        )

    def _copies(self) -> Any:
        """Returns the split on every device of this process.

        From a single device it would be sent to the others in every step.
        """
        with tf.device("CPU:0"):
            loaded = self._reader.load()
        devices = self._strategy.extended.worker_devices

        def copy(replica: tf.distribute.experimental.ValueContext) -> Any:
            with tf.device(devices[replica.replica_id_in_sync_group % len(devices)]):
                return tf.nest.map_structure(tf.identity, loaded)

        return self._strategy.experimental_distribute_values_from_function(copy)

    def _call(self, source: Any, step: tf.Tensor, steps: tf.Tensor, wish: tf.Tensor) -> tf.Tensor:
        totals = tf.zeros([self._step.values])
        for i in tf.range(steps):
            loaded = next(source) if self._reader.ahead else source
            results = self._strategy.run(self._replica, args=(loaded, step + tf.cast(i, tf.int64)))
            totals += tf.add_n(self._strategy.experimental_local_results(results))
        # One reduction per call has both the sums and the wishes of all processes.
        return self._total(tf.concat([totals, wish], 0))

    def _total(self, mine: tf.Tensor) -> tf.Tensor:
        """Returns the sum over all processes."""
        # `run` gives the same tensor to each replica of this process, so each adds a part of it.
        part = mine / len(self._strategy.extended.worker_devices)
        return self._strategy.reduce(
            "SUM", self._strategy.run(tf.identity, args=(part,)), axis=None
        )

    # Only the loop over steps needs AutoGraph. Converting
    # the rest too would take half of the time of tracing.
    @tf.autograph.experimental.do_not_convert
    def _replica(self, loaded: Any, step: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context()
        part = share(
            replica.replica_id_in_sync_group,
            replicas=replica.num_replicas_in_sync,
            global_batch=self._reader.global_batch,
        )
        batch = loaded if self._reader.ahead else self._reader.batch(loaded, step, *part)
        return self._step(batch, step, *part)
