"""Training state on disk: `checkpoints/ckpt-<step>`, the newest few, each complete or absent.

Only the copying of the state makes training wait; the files are written in a thread of their own, one save at a time.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import re
import time

import tensorflow as tf

from trainer.base.files import write_text
from trainer.job_dir.state import State

_NAME = re.compile(r"ckpt-(\d+)\.index")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """A save: the step, the seconds that writing took, and those that training waited for it."""

    step: int
    seconds: float
    waited_s: float


class Checkpoints:
    """Saves and restores a `State`. Every replica restores from the same directory; only the chief saves."""

    def __init__(self, job_dir: str, state: State, *, keep: int) -> None:
        self._directory = os.path.join(job_dir, "checkpoints")
        self._state, self._keep = state, keep
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._under_way: tuple[int, float, concurrent.futures.Future[float]] | None = None

    def steps(self) -> list[int]:
        """Steps of the checkpoints there are, oldest first."""
        if not tf.io.gfile.isdir(self._directory):
            return []
        names = (_NAME.fullmatch(name) for name in tf.io.gfile.listdir(self._directory))
        return sorted(int(match[1]) for match in names if match)

    def load(self, step: int) -> None:
        """Reads a checkpoint into the state's copies.

        Raises:
          tf.errors.OpError: If it is damaged or gone.
        """
        self._state.checkpoint.read(self._path(step)).assert_consumed()

    def restore(self) -> int:
        """Loads the newest checkpoint that can be read into the live variables. Returns its step, or 0.

        Raises:
          OSError: If there are checkpoints and none can be read.
        """
        steps = self.steps()
        for step in reversed(steps):
            try:
                self.load(step)
            except Exception as error:  # TensorFlow has many for a damaged file, IndexError among them
                print(f"checkpoint {step} cannot be read and is passed over: {_first_line(error)}", flush=True)
                continue
            return self._state.put()
        if steps:
            raise OSError(f"none of the checkpoints in {self._directory} can be read")
        return 0

    def save(self, step: int) -> Saved | None:
        """Copies the state now and writes it in the background. Returns the save before, if it is known only now."""
        start = time.perf_counter()
        before = self.wait()
        self._state.take(step)
        self._under_way = (step, time.perf_counter() - start, self._thread.submit(self._write, step))
        return before

    def wait(self) -> Saved | None:
        """Waits for the save under way, if there is one.

        Raises:
          OSError: If it failed; the checkpoints before it are as they were.
        """
        if not self._under_way:
            return None
        step, waited_s, future = self._under_way
        start = time.perf_counter()
        self._under_way = None
        try:
            seconds = future.result()
        except tf.errors.OpError as error:
            self._remove(step)
            raise OSError(f"checkpoint {step} could not be saved: {_first_line(error)}") from None
        return Saved(step=step, seconds=seconds, waited_s=waited_s + time.perf_counter() - start)

    def _write(self, step: int) -> float:
        start = time.perf_counter()
        tf.io.gfile.makedirs(self._directory)
        self._state.checkpoint.write(self._path(step))
        old = [s for s in self.steps() if s <= step][: -self._keep]
        kept = [s for s in self.steps() if s not in old]
        # TensorFlow's own index of a directory, as its CheckpointManager writes it.
        lines = [f'model_checkpoint_path: "ckpt-{step}"', *(f'all_model_checkpoint_paths: "ckpt-{s}"' for s in kept)]
        write_text(os.path.join(self._directory, "checkpoint"), "\n".join(lines) + "\n")
        for s in old:
            self._remove(s)
        return time.perf_counter() - start

    def _remove(self, step: int) -> None:
        for path in tf.io.gfile.glob(f"{self._path(step)}.*"):
            tf.io.gfile.remove(path)
        if tf.io.gfile.isdir(partial := f"{self._path(step)}_temp"):  # TensorFlow's, of a save that failed
            tf.io.gfile.rmtree(partial)

    def _path(self, step: int) -> str:
        return os.path.join(self._directory, f"ckpt-{step}")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
