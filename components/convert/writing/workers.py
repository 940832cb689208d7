"""Independent tasks, done by several processes.

    for i, result in run(work, tasks, processes=4, advance=print):
        results[i] = result

The processes are forked: what `work` refers to is theirs without being sent or held twice. Where forking is not safe
(on macOS, and with TensorFlow's threads in the process) this process does all.

Python's own pool is not used: it waits for ever if a process is killed while it sends a result, as all processes write
into one pipe whose end nobody sees, or if a handler of a signal raises amid the pool's own locks. Here each process has
a pipe, and who waits for it holds no lock.
"""

import contextlib
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

Advance = Callable[[int], object]
Work = Callable[[Any, Advance], Any]  # takes a task, and is to call the other one with what it has done since
_Outcome = tuple[int, Any, BaseException | None]  # of the task at a position: what it gave or what it raised


class EndedFromOutside(UserError):
    """A process was killed; what others have done is as good as it was."""


_TOLD_EVERY_S = 0.1


def run(work: Work, tasks: Sequence[Any], *, processes: int, advance: Advance) -> Iterator[tuple[int, Any]]:
    """Yields position and result of each task as they come.

    Raises:
      EndedFromOutside: If a process was killed. What `work` raises is raised; the other processes are ended then.
    """
    processes = min(processes, len(tasks))
    if processes <= 1 or sys.platform != "linux" or "tensorflow" in sys.modules:
        yield from ((i, work(task, advance)) for i, task in enumerate(tasks))
        return
    done, told, left = multiprocessing.Value("q"), 0, len(tasks)
    with _processes(lambda i: work(tasks[i], lambda more: _add(done, more)), left, processes) as come:
        while left:
            outcomes = come()
            now = done.get_obj().value  # without its lock, which a process may have had when it was killed
            advance(now - told)
            told = now
            for i, result, error in outcomes:
                if error is not None:
                    raise error
                left -= 1
                yield i, result


@contextlib.contextmanager
def _processes(do: Callable[[int], Any], number: int, size: int) -> Iterator[Callable[[], list[_Outcome]]]:
    """Processes that do the tasks and end with the block; gives a function that waits for outcomes, though not for long."""
    context = multiprocessing.get_context("fork")
    begun, readers = context.Value("q"), {}

    def come() -> list[_Outcome]:
        outcomes = []
        for reader in wait(readers, _TOLD_EVERY_S):
            try:
                outcomes.append(reader.recv())
            except (EOFError, OSError):  # at or within a message: the only one who writes has ended
                process = readers.pop(reader)
                process.join()
                if process.exitcode:
                    raise EndedFromOutside(
                        "a process of the conversion was ended from outside, perhaps for want of memory; convert "
                        "again, with fewer --processes; what is done is not done again"
                    ) from None
        return outcomes

    try:
        for _ in range(size):
            reader, writer = context.Pipe(duplex=False)
            arguments = os.getpid(), do, lambda: _add(begun, 1), number, writer
            readers[reader] = context.Process(target=_live, args=arguments, daemon=True)
            readers[reader].start()
            writer.close()  # here, so that it ends with the process
        yield come
    finally:
        for process in readers.values():
            if process.pid:
                process.kill()  # it may be in the middle of a task that nobody waits for any more
                process.join()


def _live(parent: int, do: Callable[[int], Any], take: Callable[[], int], number: int, writer: Connection) -> None:
    """The life of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, but its parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lifeline.watch(parent, lambda: os.kill(os.getpid(), signal.SIGKILL))
    _work(do, take, number, writer.send)


def _work(do: Callable[[int], Any], take: Callable[[], int], number: int, put: Callable[[_Outcome], object]) -> None:
    """Does tasks as long as there are any."""
    while (i := take()) < number:
        try:
            outcome = i, do(i), None
        except BaseException as error:
            if not isinstance(error, UserError):
                error.add_note(traceback.format_exc())  # which is not sent with it
            outcome = i, None, error
        put(outcome)


def _add(to: Any, more: int) -> int:
    """Adds to a number that processes share; returns what it was."""
    with to:
        before = to.get_obj().value
        to.get_obj().value = before + more
    return before
