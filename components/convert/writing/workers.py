"""Independent tasks, done by several processes.

    for i, result in run(work, tasks, processes=4, advance=print):
        results[i] = result

The processes are forked: what `work` refers to is theirs without being sent or held twice. Where forking is not safe
(on macOS, and with TensorFlow's threads in the process) threads take their place; NumPy, hashing and files let go of
the interpreter's lock, checksums do not, so these are slower and nothing else changes.
"""

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from trainer.base import lifeline
from trainer.base.errors import UserError

Advance = Callable[[int], object]
Work = Callable[[Any, Advance], Any]  # takes a task, and is to call the other one with what it has done since


class EndedFromOutside(UserError):
    """A process was killed; what others have done is as good as it was."""


_TOLD_EVERY_S = 0.1
_mine: Callable[[int], Any]  # of a process: does the task at a position


def run(work: Work, tasks: Sequence[Any], *, processes: int, advance: Advance) -> Iterator[tuple[int, Any]]:
    """Yields position and result of each task as they come.

    Raises:
      EndedFromOutside: If a process was killed. What `work` raises is raised; the other processes are ended then.
    """
    processes = min(processes, len(tasks))
    if processes <= 1:
        yield from ((i, work(task, advance)) for i, task in enumerate(tasks))
        return
    done, told = multiprocessing.Value("q"), 0

    def count(more: int) -> None:
        with done:
            done.get_obj().value += more

    with _pool(lambda i: work(tasks[i], count), processes) as submit, _signals_held_back() as heed:
        waiting = {submit(i): i for i in range(len(tasks))}
        while waiting:
            ended, _ = concurrent.futures.wait(waiting, _TOLD_EVERY_S, concurrent.futures.FIRST_COMPLETED)
            now = done.get_obj().value  # without its lock, which a process may have had when it was killed
            heed()
            advance(now - told)
            told = now
            for future in ended:
                yield waiting.pop(future), future.result()


@contextlib.contextmanager
def _pool(do: Callable[[int], Any], size: int) -> Iterator[Callable[[int], concurrent.futures.Future]]:
    """Gives a function that has the task at a position done by processes or threads, which end with the block."""
    if sys.platform != "linux" or "tensorflow" in sys.modules:
        pool = concurrent.futures.ThreadPoolExecutor(size)
        try:
            yield functools.partial(pool.submit, do)
        finally:
            pool.shutdown(cancel_futures=True)
        return
    others = multiprocessing.active_children()
    context = multiprocessing.get_context("fork")
    pool = concurrent.futures.ProcessPoolExecutor(size, context, _begin, (os.getpid(), do))
    try:
        yield functools.partial(pool.submit, _do)
    except BaseException as error:
        for process in set(multiprocessing.active_children()).difference(others):
            process.kill()  # it may be in the middle of a task that nobody waits for any more
        if isinstance(error, BrokenProcessPool):
            raise EndedFromOutside(
                "a process of the conversion was ended from outside, perhaps for want of memory; convert again, with "
                "fewer --processes; what is done is not done again"
            ) from None
        raise
    finally:
        pool.shutdown()


@contextlib.contextmanager
def _signals_held_back() -> Iterator[Callable[[], None]]:
    """Keeps Ctrl-C and SIGTERM until the block ends, or until what it gives is called: then they do what they always do.

    What their handlers raise would come between any two instructions of the pool. A future's lock that was just taken
    would stay taken, the pool's own thread wait for it, and the program for that thread: for ever.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # which alone has handlers
        yield lambda: None
        return
    usual = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) not in (signal.SIG_IGN, None)
    }

    def heed() -> None:
        if came:
            for number, handler in usual.items():
                signal.signal(number, handler)
            signal.raise_signal(came.pop())

    try:
        yield heed
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
    heed()


def _begin(parent: int, do: Callable[[int], Any]) -> None:
    """The beginning of a process's life."""
    global _mine
    _mine = do
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too, but its parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    lifeline.watch(parent, lambda: os.kill(os.getpid(), signal.SIGKILL))


def _do(i: int) -> Any:
    return _mine(i)
