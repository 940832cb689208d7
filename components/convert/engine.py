"""Independent tasks in several processes of this machine.

    for i, result in run(convert_piece, tasks, processes=4):
        results[i] = result

The processes are forked: what the function refers to is theirs without being sent or held twice. Where forking is not safe (on
macOS, and with TensorFlow's threads in the process) this process does all.

Results come back in files. Python's pool reads them from one pipe for all processes, and would wait for ever for the rest of a
message whose sender was killed.
"""

import multiprocessing
import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

from common import lifeline
from common.errors import UserError

_POLL_S = 0.05


class ProcessLost(UserError):
    """A process was killed; what the others have done is as good as it was."""


_function: Callable[[Any], Any]


def run(function: Callable[[Any], Any], tasks: Sequence[Any], *, processes: int) -> Iterator[tuple[int, Any]]:
    """Yields position and result of each task as they come.

    Raises:
      ProcessLost: If a process was killed. What `function` raises is raised; the other processes are ended then.
    """
    processes = min(processes, len(tasks))
    if processes <= 1 or sys.platform != "linux" or "tensorflow" in sys.modules:
        yield from ((i, function(task)) for i, task in enumerate(tasks))
        return
    results, others = queue.SimpleQueue(), multiprocessing.active_children()
    # Not in this thread, where a signal may raise an exception while the pool holds a lock, and for ever.
    manager = threading.Thread(target=_manage, args=(function, tasks, processes, results), name="pool", daemon=True)
    try:
        manager.start()
        for _ in tasks:
            position, result, error = results.get()
            if error:
                raise error
            yield position, result
        manager.join()
    finally:
        while manager.is_alive():  # Processes may be in the middle of tasks that nobody waits for any more.
            for child in {*multiprocessing.active_children()}.difference(others):
                child.kill()
            manager.join(_POLL_S)


def _manage(function: Callable[[Any], Any], tasks: Sequence[Any], processes: int, results: queue.SimpleQueue) -> None:
    """Puts position, result and error of each task, or an error that ends all, into a queue."""
    context, initial = multiprocessing.get_context("fork"), (os.getpid(), function)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="results-") as folder,
            futures.ProcessPoolExecutor(processes, context, initializer=_begin, initargs=initial) as pool,
        ):
            paths = [os.path.join(folder, str(i)) for i in range(len(tasks))]
            positions = {pool.submit(_call, *each): i for i, each in enumerate(zip(tasks, paths, strict=True))}
            for future in futures.as_completed(positions):
                future.result()
                with open(paths[positions[future]], "rb") as file:
                    results.put((positions[future], *pickle.load(file)))
                os.unlink(file.name)
    except futures.BrokenExecutor:
        lost = ProcessLost(
            "a process of the conversion was ended from outside, perhaps for want of memory; convert again, with fewer "
            "--processes; what is done is not done again"
        )
        results.put((None, None, lost))
    except Exception as error:  # A disk that is full, perhaps.
        results.put((None, None, error))


def _begin(parent: int, function: Callable[[Any], Any]) -> None:
    """Prepares a process."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, but its parent decides.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lifeline.watch(parent, lambda: os.kill(os.getpid(), signal.SIGKILL))


def _call(task: Any, path: str) -> None:
    """Writes the outcome of a task to a file."""
    with open(path, "wb") as file:
        pickle.dump(attempt(_function, task), file)


def attempt(function: Callable[[Any], Any], task: Any) -> tuple[Any, Exception | None]:
    """Returns what a function returns for a task, and the error that it raises."""
    try:
        return function(task), None
    except Exception as error:
        if not isinstance(error, UserError):
            error.add_note(traceback.format_exc())  # It is not sent with the error.
        return None, error
