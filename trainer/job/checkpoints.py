"""Training state on disk: `checkpoints/ckpt-<step>`, the newest few.

A checkpoint whose writer was killed may be cut; it is passed over. Here stands all of the policy:
when a checkpoint is due, which are kept, and which one a job goes on from. Only the copying of the
state makes training wait; the files are written in a thread of their own, one save at a time.
"""

import concurrent.futures
import os
import re
import time

import tensorflow as tf

from common.errors import first_line, store_errors
from common.storage.files import write_text
from trainer.job.journal import Journal
from trainer.job.state import State

_NAME = re.compile(r"ckpt-(\d+)\.index")


class Checkpoints:
    """Saves and restores a `State`. Every replica restores from the same directory and follows the same policy."""

    def __init__(
        self,
        job_dir: str,
        state: State,
        journal: Journal | None = None,
        *,
        keep: int = 3,
        every_steps: int = 0,
        every_s: float = 0.0,
    ) -> None:
        """Only the chief saves, and tells of it in its `journal`: a save is noted when it is complete, and not before."""
        self._directory = os.path.join(job_dir, "checkpoints")
        self.state, self._journal = state, journal
        self._keep, self._every_steps, self._every_s = keep, every_steps, every_s
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: concurrent.futures.Future[None] | None = None
        self._saved_at = time.monotonic()
        self._unreadable: set[int] = set()

    @property
    def is_late(self) -> bool:
        """Whether the time since the last one is up: to be made as soon as the state may be saved."""
        return 0 < self._every_s <= time.monotonic() - self._saved_at

    def is_due(self, step: int) -> bool:
        """Returns whether one is to be made at this step."""
        return self.is_late or (self._every_steps > 0 and step % self._every_steps == 0)

    def steps(self) -> list[int]:
        """Steps of the checkpoints there are, oldest first."""
        return steps(self._directory)

    def load_newest(self, after: int = 0) -> int:
        """Reads the newest checkpoint beyond step `after` into the state's copies. Returns its step, or 0 without one.

        One that cannot be read is named once and passed over from then on.

        Raises:
          OSError: If the store does not answer, which says nothing of the checkpoint: replicas must
            not go on from two.
        """
        for step in reversed(self.steps()):
            if step <= after or step in self._unreadable:
                continue
            try:
                self.state.checkpoint.read(self._path(step)).assert_consumed()
                return step
            except (
                Exception
            ) as error:  # TensorFlow has many for a damaged file, IndexError among them
                if "retry attempts failed" in str(error):  # in whichever class, a ValueError too
                    raise OSError(first_line(error)) from None
                if (
                    step in self.steps()
                ):  # else it was deleted while it was read: there is a newer one
                    self._unreadable.add(step)
                    print(
                        f"checkpoint {step} cannot be read and is passed over: {first_line(error)}"
                    )
        return 0

    def restore(self) -> int:
        """Loads the newest checkpoint that can be read into the live variables. Returns its step, or 0 if there is none."""
        if self.load_newest():
            return self.state.put()
        if self.steps():
            raise OSError(f"none of the checkpoints in {self._directory} can be read")
        return 0

    def save(self, step: int) -> None:
        """Copies the training state now; a thread writes the copy to disk, after any earlier save."""
        self._saved_at = time.monotonic()
        if self._journal:
            self._journal.status("saving", step)
            start = time.perf_counter()
            self.copy_state(step)
            waited_s = time.perf_counter() - start
            self._saving = self._thread.submit(self._write, step, waited_s)

    def copy_state(self, step: int) -> None:
        """Copies the state of this step, when the save before has written its copies."""
        self.wait()
        self.state.take(step)

    def wait(self) -> None:
        """Waits for the last save.

        Raises:
          OSError: If it failed; the checkpoints before it are as they were.
        """
        if self._saving:
            self._saving.result()

    def _write(self, step: int, waited_s: float) -> None:
        start = time.perf_counter()
        try:
            self.state.checkpoint.write(self._path(step))
        except tf.errors.OpError as error:
            remove(self._path(step))
            raise OSError(f"checkpoint {step} could not be saved: {first_line(error)}") from None
        saved = self.steps()
        old = [s for s in saved if s <= step][: -self._keep]
        kept = [f"ckpt-{s}" for s in saved if s not in old]
        # What TensorFlow itself finds the newest by. `update_checkpoint_state` would write it too,
        # with a warning. Its names are relative to the directory they are in; given that, it would
        # count gs:// and jobs/a from elsewhere.
        index = tf.compat.v1.train.generate_checkpoint_state_proto(".", f"ckpt-{step}", kept)
        write_text(os.path.join(self._directory, "checkpoint"), str(index))
        for s in old:
            remove(self._path(s))
        seconds = time.perf_counter() - start
        self._journal.event(
            "checkpoint", step, seconds=round(seconds, 4), waited_s=round(waited_s, 4)
        )

    def _path(self, step: int) -> str:
        return os.path.join(self._directory, f"ckpt-{step}")


def steps(directory: str) -> list[int]:
    """Steps of the complete checkpoints in a directory, oldest first."""
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, _listed(directory)) if match)


def remove(path: str) -> None:
    """Deletes the files of a checkpoint, and those of a save that failed.

    By their names and not by a pattern, which other names in `path` could be too.
    """
    directory, name = os.path.split(path)
    with store_errors():
        for file in _listed(directory):
            if file.startswith(f"{name}."):
                tf.io.gfile.remove(os.path.join(directory, file))
        partial = f"{path}_temp"
        if tf.io.gfile.isdir(partial):
            tf.io.gfile.rmtree(partial)


def _listed(directory: str) -> list[str]:
    with store_errors():
        try:
            tf.io.gfile.stat(
                directory
            )  # which alone tells a store that fails from a directory that is not there
        except tf.errors.NotFoundError:
            return []
        return tf.io.gfile.listdir(directory)
