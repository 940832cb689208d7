"""A profile of some steps, which TensorBoard shows (with its plugin `tensorboard-plugin-profile`)."""

import math

import tensorflow as tf


class Profile:
    """Has TensorFlow's profiler run from one step to another.

    All replicas must know the steps, because their calls end there; one of them writes.
    """

    def __init__(self, steps: tuple[int, int] | None, directory: str | None) -> None:
        """Args: `steps` are the first and the last; `directory` is one of TensorBoard's logs, None to write nothing."""
        self._bounds = (steps[0] - 1, steps[1]) if steps else ()
        self._directory, self._runs = directory, False

    def next_step(self, step: int) -> float:
        """The next step after which it begins or ends; infinite if there is none."""
        return min((bound for bound in self._bounds if bound > step), default=math.inf)

    def at(self, step: int, *, last: bool = False) -> None:
        """Begins or ends, if that is to be done after `step` steps; ends if they were the last."""
        inside = bool(self._bounds and self._directory and not last) and self._bounds[0] <= step < self._bounds[1]
        if inside and not self._runs:
            tf.profiler.experimental.start(self._directory)
        elif self._runs and not inside:
            tf.profiler.experimental.stop()
            print("profile written to logs/train", flush=True)
        self._runs = inside
