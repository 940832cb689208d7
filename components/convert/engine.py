"""Independent tasks in several processes of this machine.

    for i, result in run(convert_piece, tasks, processes=4):
        results[i] = result

The processes are forked: what the function refers to is theirs without being sent or held twice.
Where forking is not safe (on macOS, and with TensorFlow's threads in the process) this process does
all.

Each process has a pipe of its own. A pool of Python's has one for all, and would wait for ever for
the rest of a message whose sender was killed.
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
    """A process was killed; what the others have done is as good as it was."""


def run(
    function: Callable[[Any], Any], tasks: Sequence[Any], *, processes: int
) -> Iterator[tuple[int, Any]]:
    """Yields position and result of each task as they come.

    Raises:
      ProcessLostError: If a process was killed. What `function` raises is raised; the other
        processes are ended then.
    """
    processes = min(processes, len(tasks))
    if processes <= 1 or sys.platform != "linux" or "tensorflow" in sys.modules:
        yield from ((i, function(task)) for i, task in enumerate(tasks))
        return
    context = multiprocessing.get_context("fork")
    positions = iter(range(processes, len(tasks)))
    workers, connections = [], []
    try:
        for position in range(processes):
            connection, other_end = context.Pipe()
            job = (os.getpid(), function, tasks, position, other_end)
            worker = context.Process(target=_work, args=job, daemon=True)
            connections.append(connection)
            workers.append(worker)
            worker.start()
            other_end.close()  # So that it is closed when the process ends.
        for _ in tasks:
            connection = wait(connections)[0]
            try:
                position, result, error = connection.recv()
                if (upcoming := next(positions, None)) is not None:
                    connection.send(upcoming)
            except (EOFError, OSError):
                raise ProcessLostError(
                    "a process of the conversion was ended from outside, perhaps for want of "
                    "memory; convert again, with fewer "
                    "--processes; what is done is not done again"
                ) from None
            if error:
                raise error
            yield position, result
    finally:
        for worker in workers:
            if worker.pid:  # A signal may come before it has started.
                worker.kill()
                worker.join()


def _work(
    parent: int,
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    position: int,
    connection: Connection,
) -> None:
    """Sends position, result and error of a task and of each whose position is received then, until it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, but its parent decides.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lifeline.watch(parent, lambda: os.kill(os.getpid(), signal.SIGKILL))
    while True:
        connection.send((position, *attempt(function, tasks[position])))
        position = connection.recv()


def attempt(function: Callable[[Any], Any], task: Any) -> tuple[Any, Exception | None]:
    """Returns what a function returns for a task, and the error that it raises."""
    try:
        return function(task), None
    except Exception as error:
        if not isinstance(error, UserError):
            error.add_note(traceback.format_exc())  # It is not sent with the error.
        return None, error
