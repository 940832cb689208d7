"""Training state on disk: `checkpoints/ckpt-<step>`, the newest few.

A checkpoint whose writer was killed may be incomplete; it is skipped. This module has the whole
policy: when a checkpoint is due, which are kept, and from which one a job resumes. Training waits
only while the state is copied. The files are written in a thread, one save at a time.
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
    """Saves and restores a `State`.

    Every replica restores from the same directory and follows the same policy; only the chief
    saves.
    """

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
        """Prepares to save and restore.

        Args:
          job_dir: Directory of the job.
          state: State to save and restore.
          journal: Journal in which the chief notes each complete save; None on other replicas,
            which do not save.
          keep: Number of newest checkpoints to keep.
          every_steps: Steps between checkpoints; 0 for none by steps.
          every_s: Seconds between checkpoints; 0 for none by time.
        """
        self._directory = os.path.join(job_dir, "checkpoints")
        self.state, self._journal = state, journal
        self._keep, self._every_steps, self._every_s = keep, every_steps, every_s
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._saving: concurrent.futures.Future[None] | None = None
        self._saved_at = time.monotonic()
        self._unreadable: set[int] = set()

    @property
    def is_late(self) -> bool:
        """True if `every_s` seconds have passed since the last save, or the start.

        The next possible step should be saved then. It is never True if `every_s` is 0.
        """
        return 0 < self._every_s <= time.monotonic() - self._saved_at

    def is_due(self, step: int) -> bool:
        """Returns whether a checkpoint is to be made now: by time, or because of the step.

        That is so if `is_late` is true, or if the step is a multiple of `every_steps`, no matter
        when the last checkpoint was made.
        """
        return self.is_late or (self._every_steps > 0 and step % self._every_steps == 0)

    def steps(self) -> list[int]:
        """Returns the steps of the job's checkpoints that have their index file, oldest first.

        Raises:
          OSError: If a store does not answer, or refuses the request.
        """
        return steps(self._directory)

    def load_newest(self, after: int = 0) -> int:
        """Reads the newest checkpoint after step `after` into the state's copies.

        One that cannot be read, or is of another model, is named once in a printed line, and
        skipped from then on. The live variables do not change.

        Returns:
          The step of the checkpoint, or 0 if there is none.

        Raises:
          OSError: If the store does not answer. This says nothing about the checkpoint, and
            replicas must not resume from different ones.
        """
        for step in reversed(self.steps()):
            if step <= after or step in self._unreadable:
                continue
            try:
                self.state.checkpoint.read(self._path(step)).assert_consumed()
                return step
            except Exception as error:
                # TensorFlow raises many kinds of errors for a damaged file, such as IndexError. A
                # store that does not answer is known by the message alone, in any kind of error.
                if "retry attempts failed" in str(error):
                    raise OSError(first_line(error)) from None
                # If it was deleted while it was read, there is a newer one, and it is not damaged.
                if step in self.steps():
                    self._unreadable.add(step)
                    print(
                        f"checkpoint {step} cannot be read and is passed over: {first_line(error)}"
                    )
        return 0

    def restore(self) -> int:
        """Loads the newest readable checkpoint into the live variables.

        One that cannot be read, or is of another model, is named in a printed line and passed over;
        it changes no variable.

        Returns:
          The step of the checkpoint, or 0 if there are no checkpoints.

        Raises:
          OSError: If there are checkpoints and none can be read, or the store does not answer.
        """
        if self.load_newest():
            return self.state.put()
        if self.steps():
            raise OSError(f"none of the checkpoints in {self._directory} can be read")
        return 0

    def save(self, step: int) -> None:
        """Copies the training state now; a thread writes the copy to disk.

        The thread then deletes all but the newest `keep` checkpoints, and notes the save in the
        journal. Copying waits for the save before. Without a journal, nothing is saved, and only
        the time until the next checkpoint begins anew.

        Raises:
          OSError: If the save before has failed, or a store has not answered.
          UserError: If a store has refused to take the save before.
        """
        self._saved_at = time.monotonic()
        if journal := self._journal:
            journal.status("saving", step)
            start = time.perf_counter()
            self.copy_state(step)
            waited_s = time.perf_counter() - start
            self._saving = self._thread.submit(self._write, journal, step, waited_s)

    def copy_state(self, step: int) -> None:
        """Waits until the save before has ended, and copies the state of this step.

        Raises:
          OSError: If that save has failed, or a store has not answered.
          UserError: If a store has refused to take it.
        """
        self.wait()
        self.state.take(step)

    def wait(self) -> None:
        """Waits for the last save, if there is one.

        Raises:
          OSError: If it failed, or a store has not answered; earlier checkpoints are unchanged.
          UserError: If a store has refused to take it.
        """
        if self._saving:
            self._saving.result()

    def _write(self, journal: Journal, step: int, waited_s: float) -> None:
        start = time.perf_counter()
        try:
            self.state.checkpoint.write(self._path(step))
        except tf.errors.OpError as error:
            remove(self._path(step))
            raise OSError(f"checkpoint {step} could not be saved: {first_line(error)}") from None
        saved = self.steps()
        old = [s for s in saved if s <= step][: -self._keep]
        kept = [f"ckpt-{s}" for s in saved if s not in old]
        # TensorFlow's own functions find the newest checkpoint by this file.
        # `update_checkpoint_state` would write it too, with a warning. The names in it are relative
        # to its directory; with that directory given, they would be relative to the working
        # directory for `gs://` and paths such as jobs/a.
        index = tf.compat.v1.train.generate_checkpoint_state_proto(".", f"ckpt-{step}", kept)
        write_text(os.path.join(self._directory, "checkpoint"), str(index))
        for s in old:
            remove(self._path(s))
        seconds = time.perf_counter() - start
        journal.event("checkpoint", step, seconds=round(seconds, 4), waited_s=round(waited_s, 4))

    def _path(self, step: int) -> str:
        return os.path.join(self._directory, f"ckpt-{step}")


def steps(directory: str) -> list[int]:
    """Returns the steps of the checkpoints in a directory, oldest first.

    A checkpoint is listed once it has its index file. The list is empty if there is no such
    directory.

    Raises:
      OSError: If a store does not answer, or refuses the request.
    """
    return sorted(int(match[1]) for match in map(_NAME.fullmatch, _listed(directory)) if match)


def remove(path: str) -> None:
    """Deletes the files of a checkpoint, and those of a save that failed.

    Files are matched by name, as a pattern could match others if `path` has special characters.

    Args:
      path: Path of the checkpoint, without an ending. There may be no files of it.

    Raises:
      OSError: If a file cannot be deleted, or a store does not answer.
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
            # Unlike `exists` and `listdir`, this distinguishes
            # a missing directory from a store that fails.
            tf.io.gfile.stat(directory)
        except tf.errors.NotFoundError:
            return []
        return tf.io.gfile.listdir(directory)
