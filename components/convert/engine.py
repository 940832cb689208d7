"""Runs independent tasks in several processes of this machine.

    for i, result in run(convert_piece, tasks, processes=4):
        results[i] = result

The processes are forked, so they have everything that the function refers to, without a transfer or
a second copy. Where forking is not safe (on other systems than Linux, and once TensorFlow with its
threads is imported), this process runs all tasks.

Each process has a pipe of its own. The processes of a pool of Python's standard library share one,
and if one of them is killed while it sends, the pool waits forever for the rest of the message.
"""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from common import lifeline
from common.errors import UserError


class ProcessLostError(UserError):
    """A process was killed. What the others have finished is valid."""


def run(
    function: Callable[[Any], Any], tasks: Sequence[Any], *, processes: int
) -> Iterator[tuple[int, Any]]:
    """Runs a function for each task, and yields the results in the order in which they come.

    Args:
      function: Takes a task; it may be a closure.
      tasks: Tasks.
      processes: Largest number of processes. This process runs all tasks if it is 1, on other
        systems than Linux, and once TensorFlow is imported.

    Yields:
      The position of a task in `tasks`, and what the function returned for it.

    Raises:
      ProcessLostError: If a process was killed.
      Exception: What the function raises. The other processes are killed then.
    """
    processes = min(processes, len(tasks))
    if processes <= 1 or sys.platform != "linux" or "tensorflow" in sys.modules:
        yield from ((i, function(task)) for i, task in enumerate(tasks))
        return
    context = multiprocessing.get_context("fork")
    positions = iter(range(processes, len(tasks)))
    workers = {}
    try:
        for position in range(processes):
            connection, other_end = context.Pipe()
            job = (os.getpid(), function, tasks, position, other_end)
            workers[connection] = context.Process(target=_work, args=job, daemon=True)
            workers[connection].start()
            other_end.close()  # Only the worker has it now, so the pipe closes when that ends.
        for _ in tasks:
            ready: Any = wait(workers)[0]
            try:
                position, result, error = ready.recv()
                if (upcoming := next(positions, None)) is not None:
                    ready.send(upcoming)
            except (EOFError, OSError):
                raise ProcessLostError(
                    "a process of the conversion was ended from outside, perhaps for want of "
                    "memory; convert again, with fewer --processes; what is done is not done again"
                ) from None
            if error:
                raise error
            yield position, result
    finally:
        for worker in workers.values():
            if worker.pid:  # A signal may arrive before the worker has started.
                worker.kill()
                worker.join()


def _work(
    parent: int,
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    position: int,
    connection: Connection,
) -> None:
    """Runs tasks in a process of their own until it is killed, or its parent ends.

    Sends the position, the result and the error of the task at `position`, and then of each task
    whose position it receives.
    """
    # Ctrl-C reaches this process too, but its parent decides when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lifeline.watch(parent)
    while True:
        connection.send((position, *attempt(function, tasks[position])))
        position = connection.recv()


def attempt(function: Callable[[Any], Any], task: Any) -> tuple[Any, Exception | None]:
    """Calls a function for a task.

    Returns:
      What the function returns, and None; or None, and the error that it raises. An error that is
      no `UserError` gets its traceback as a note.
    """
    try:
        return function(task), None
    except Exception as error:
        if not isinstance(error, UserError):
            error.add_note(traceback.format_exc())  # A pickled error loses its traceback.
        return None, error
