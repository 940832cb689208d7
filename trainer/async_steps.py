"""Steps of a parameter-server job, many a call, scheduled by the chief on whichever worker is free."""

import collections
import time

import tensorflow as tf

from trainer.data.reader import Reader
from trainer.train_step import CALL_S, TrainStep, Window

_PAUSE_S = 0.1  # Before a result is fetched again.


class AsyncSteps:
    """Steps of a parameter-server job, scheduled by the chief on whichever worker is free.

    The step number is an argument of the scheduled call, so a call repeated after a worker died
    sees the same batch.
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
        # The data is held by each worker: a dataset that yields the same tensors again and again
        # copies nothing.
        self._loaded = iter(
            coordinator.create_per_worker_dataset(
                lambda: tf.data.Dataset.from_tensors(reader.load()).repeat()
            )
        )
        self._function = tf.function(self._call)
        self._under_way = collections.deque()  # Of each call its steps and its result.
        self._scheduled = 0
        self._steps_a_call = 1
        self._fetched = 0
        self._last_s = time.perf_counter()

    def agree(self, wish: bool) -> bool:
        """Returns the wish. Only the chief schedules steps, so its wish decides."""
        return wish

    @property
    def idle(self) -> bool:
        """Whether the state may be saved now: every scheduled call has been waited for."""
        return not self._under_way

    def run(self, step: int, until: int, stop: bool, drain: bool = False) -> Window:
        """Schedules calls towards `until` and waits for the oldest; with `drain`, adds none to those under way."""
        if self.idle:
            self._scheduled, self._last_s = step, time.perf_counter()
        # Two calls a worker keep all busy; more would only delay a stop.
        while self._scheduled < until and len(self._under_way) < (
            1 if drain else 2 * self._workers
        ):
            steps = min(self._steps_a_call, until - self._scheduled)
            arguments = (self._loaded, tf.constant(self._scheduled, tf.int64), tf.constant(steps))
            self._under_way.append(
                (steps, self._coordinator.schedule(self._function, args=arguments))
            )
            self._scheduled += steps
        steps, result = self._under_way.popleft()
        sums = self._sums(result)
        now = time.perf_counter()
        seconds, self._last_s = now - self._last_s, now
        self._fetched += 1
        warm = self._fetched > 2 * self._workers  # until then some worker may still be tracing
        if warm:
            rate = steps / seconds / self._workers
            self._steps_a_call = max(1, min(4 * self._steps_a_call, round(CALL_S * rate)))
        return Window(steps=steps, sums=sums, seconds=seconds, warm=warm, stop=stop)

    def _sums(self, result: tf.distribute.coordinator.RemoteValue) -> tuple[float, ...]:
        """Waits for the result of a call.

        TensorFlow shows a result as soon as the call is done. If the worker ends before the chief
        has a copy, fetching fails here, while the coordinator has the call repeated; only an error
        that ends the job is raised.
        """
        while True:
            is_final = self._coordinator.done()  # raises what the coordinator could not mend
            try:
                return tuple(result.fetch().tolist())
            except tf.errors.OpError:
                if is_final:
                    raise
                time.sleep(_PAUSE_S)

    def _call(self, source, step: tf.Tensor, steps: tf.Tensor) -> tf.Tensor:
        loaded = next(source)
        totals = tf.zeros([self._step.values])
        for i in tf.range(steps):
            totals += self._coordinator.strategy.run(
                self._one, args=(loaded, step + tf.cast(i, tf.int64))
            )
        return totals

    @tf.autograph.experimental.do_not_convert
    def _one(self, loaded, step: tf.Tensor) -> tf.Tensor:
        all_examples = (0, self._reader.global_batch)
        return self._step(self._reader.batch(loaded, step, *all_examples), step, *all_examples)
