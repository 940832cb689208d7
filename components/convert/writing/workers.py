"""Independent tasks, done by several processes.

    for i, result in run(work, tasks, processes=4, advance=print):
        results[i] = result

The processes are forked: what `work` refers to is theirs without being sent or held twice. Where forking is not safe
(on macOS, and with TensorFlow's threads in the process) threads take their place; NumPy, hashing and files let go of
the interpreter's lock, checksums do not, so these are slower and nothing else changes.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from trainer.base import lifeline
from trainer.base.errors import UserError

Advance = Callable[[int], object]
Work = Callable[[Any, Advance], Any]  # takes a task, and is to call the other one with what it has done since


def run(work: Work, tasks: Sequence[Any], *, processes: int, advance: Advance) -> Iterator[tuple[int, Any]]:
    """Yields position and result of each task as they come.

    Raises:
      UserError: If a process was killed. What `work` raises is raised; the other processes are ended then.
    """
    processes = min(processes, len(tasks))
    if processes <= 1:
        yield from ((i, work(task, advance)) for i, task in enumerate(tasks))
    elif sys.platform == "linux" and "tensorflow" not in sys.modules:
        yield from _in_processes(work, tasks, processes, advance)
    else:
        yield from _in_threads(work, tasks, processes, advance)


def _in_processes(work: Work, tasks: Sequence[Any], processes: int, advance: Advance) -> Iterator[tuple[int, Any]]:
    import multiprocessing.connection

    context = multiprocessing.get_context("fork")
    waiting, busy, started = iter(range(len(tasks))), {}, []
    try:
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(os.getpid(), theirs, work, tasks), daemon=True)
            process.start()
            theirs.close()  # now its end is with the process alone, and closes with it
            started.append(process)
            busy[ours] = process, None
        for connection in list(busy):
            _hand_out(connection, busy, waiting)
        while busy:
            for connection in multiprocessing.connection.wait(list(busy)):
                process, i = busy[connection]
                try:
                    kind, value = connection.recv()
                except (EOFError, ConnectionError):
                    raise _killed(process) from None
                if kind == "failed":
                    raise value
                if kind == "done":
                    advance(value)
                else:
                    _hand_out(connection, busy, waiting)
                    yield i, value
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.join()


def _hand_out(connection: Connection, busy: dict[Connection, tuple[Any, int | None]], waiting: Iterator[int]) -> None:
    """Gives the process the next task, if there is one."""
    process, _ = busy.pop(connection)
    if (i := next(waiting, None)) is not None:
        busy[connection] = process, i
        with contextlib.suppress(ConnectionError):  # it was killed, as will show when it is listened to
            connection.send(i)


def _serve(parent: int, connection: Connection, work: Work, tasks: Sequence[Any]) -> None:
    """The life of a process: does tasks as they are asked for, until it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, but its parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lifeline.watch(parent, lambda: os.kill(os.getpid(), signal.SIGKILL))
    while True:
        task = tasks[connection.recv()]
        try:
            message = "result", work(task, lambda more: connection.send(("done", more)))
        except Exception as error:
            if not isinstance(error, UserError | OSError):
                error.add_note(traceback.format_exc())
            message = "failed", error
        connection.send(message)


def _killed(process: Any) -> UserError:
    process.join()
    how = f"exit code {process.exitcode}"
    if process.exitcode < 0:
        how = signal.Signals(-process.exitcode).name
    return UserError(
        f"a process of the conversion was ended from outside ({how}), perhaps for want of memory; convert again, with "
        "fewer --processes or less --memory-gb"
    )


def _in_threads(work: Work, tasks: Sequence[Any], threads: int, advance: Advance) -> Iterator[tuple[int, Any]]:
    lock = threading.Lock()

    def advance_alone(more: int) -> None:
        with lock:
            advance(more)

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        futures = {pool.submit(work, task, advance_alone): i for i, task in enumerate(tasks)}
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)
