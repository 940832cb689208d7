"""Steps of a parameter-server job, several per call, which the chief schedules on free workers."""

import time
from typing import Any

import tensorflow as tf

from trainer.data.reader import Reader
from trainer.train_step import CALL_S, TrainStep, Window

_PAUSE_S = 0.1  # Wait before a result is fetched again.


class AsyncSteps:
    """Steps of a parameter-server job, which the chief schedules on whichever worker is free.

    The step number is an argument of the scheduled call, so a call that is repeated after a worker
    died sees the same batch.
    """

    def __init__(
        self,
        coordinator: tf.distribute.coordinator.ClusterCoordinator,
        step: TrainStep,
        reader: Reader,
        workers: int,
    ) -> None:
        self._coordinator, self._step, self._workers = coordinator, step, workers
        self._reader = reader
        # Each worker holds the data. A dataset that yields
        # the same tensors again and again copies nothing.
        self._loaded = iter(
            coordinator.create_per_worker_dataset(
                lambda: tf.data.Dataset.from_tensors(reader.load()).repeat()
            )
        )
        self._function = tf.function(self._call)
        self._under_way: list[tuple[int, Any]] = []  # Number of steps and result of each call.
        self._scheduled = 0
        self._steps_a_call = 1
        self._fetched = 0
        self._last_s = time.perf_counter()

    def agree(self, wish: bool) -> bool:
        """Returns `wish`: only the chief schedules steps, so it need not ask others."""
        return wish

    @property
    def idle(self) -> bool:
        """True if no scheduled call is under way, so that the state may be saved."""
        return not self._under_way

    def run(self, step: int, until: int, stop: bool, drain: bool = False) -> Window:
        """Schedules calls up to step `until`, and waits for the oldest call.

        At most two calls per worker are under way. A call has as many steps as take about half a
        second.

        Args:
          step: Global step of the state; it matters only if nothing is under way.
          until: Step at which scheduling ends, greater than `step`.
          stop: Copied to the result.
          drain: Schedules no call while any is under way.

        Returns:
          The result of the oldest call.

        Raises:
          tf.errors.OpError: If the coordinator cannot go on, for example without a parameter
            server.
        """
        if self.idle:
            self._scheduled, self._last_s = step, time.perf_counter()
        # Two calls per worker keep all of them busy; more would only delay a stop.
        while self._scheduled < until and len(self._under_way) < (
            1 if drain else 2 * self._workers
        ):
            steps = min(self._steps_a_call, until - self._scheduled)
            arguments = (self._loaded, tf.constant(self._scheduled, tf.int64), tf.constant(steps))
            self._under_way.append(
                (steps, self._coordinator.schedule(self._function, args=arguments))
            )
            self._scheduled += steps
        steps, result = self._under_way.pop(0)
        sums = self._sums(result)
        now = time.perf_counter()
        seconds, self._last_s = now - self._last_s, now
        self._fetched += 1
        warm = self._fetched > 2 * self._workers  # Until then some worker may still be tracing.
        if warm:
            rate = steps / seconds / self._workers
            self._steps_a_call = max(1, min(4 * self._steps_a_call, round(CALL_S * rate)))
        return Window(steps=steps, sums=sums, seconds=seconds, warm=warm, stop=stop)

    def _sums(self, result: tf.distribute.coordinator.RemoteValue) -> tuple[float, ...]:
        """Waits for the result of a call, and returns it as `Window.sums`.

        TensorFlow shows a result as soon as the call is done. If the worker ends before the chief
        has a copy, fetching fails here while the coordinator repeats the call, so it is tried
        again; only an error that ends the job is raised.
        """
        while True:
            is_final = self._coordinator.done()  # Raises an error that ends the job.
            try:
                return tuple(result.fetch().tolist())
            except tf.errors.OpError:
                if is_final:
                    raise
                time.sleep(_PAUSE_S)

    def _call(self, source: Any, step: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        loaded = next(source)
        totals = tf.zeros([self._step.values])
        for i in tf.range(steps):
            totals += self._coordinator.strategy.run(
                self._one, args=(loaded, step + tf.cast(i, tf.int64))
            )
        return totals

    @tf.autograph.experimental.do_not_convert
    def _one(self, loaded: Any, step: tf.Tensor) -> tf.Tensor:
        all_examples = (0, self._reader.global_batch)
        return self._step(self._reader.batch(loaded, step, *all_examples), step, *all_examples)
