import multiprocessing
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from common.errors import UserError
from components.convert.writing import workers

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def forking(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    if sys.platform != "linux":
        pytest.skip("processes are forked on Linux only")


@pytest.mark.parametrize("processes", [1, 3, 30])
def test_every_task_is_done_once_and_progress_is_told(processes):
    tasks, told = [5, 3, 8, 1, 9, 2, 7], []

    def square(task: int, advance: workers.Advance) -> tuple[int, int]:  # of this test: it could not be sent
        time.sleep(task / 1000)
        advance(task)
        advance(1)
        return task**2, os.getpid()

    found = dict(workers.run(square, tasks, processes=processes, advance=told.append))
    assert {i: value for i, (value, _) in found.items()} == {i: task**2 for i, task in enumerate(tasks)}
    assert sum(told) == sum(tasks) + len(tasks)
    used = {pid for _, pid in found.values()}
    assert (os.getpid() in used) == (processes == 1)
    assert not multiprocessing.active_children()
    assert list(workers.run(square, [], processes=processes, advance=told.append)) == []


def test_with_tensorflow_in_the_process_it_does_all_itself(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    done = list(workers.run(lambda task, advance: os.getpid(), range(3), processes=3, advance=print))
    assert done == [(i, os.getpid()) for i in range(3)]


@pytest.mark.parametrize("error", [UserError("trips.csv: line 3"), OSError(28, "No space left"), KeyError("bug")])
def test_what_work_raises_is_raised_and_the_others_end(error):
    def work(task, advance):
        if task == 3:
            raise error
        time.sleep(3600)

    with pytest.raises(type(error)) as caught:
        list(workers.run(work, [3, 0, 1, 2], processes=4, advance=print))
    assert str(caught.value) == str(error)
    assert not multiprocessing.active_children()
    if isinstance(error, KeyError):
        assert "in work" in caught.value.__notes__[0]


@pytest.mark.parametrize("which", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_is_told_in_one_line(which):
    def work(task, advance):
        if task == 2:
            os.kill(os.getpid(), which)
        return task

    with pytest.raises(UserError, match=r"^a process .* ended from outside, perhaps for want of memory; .*--processes"):
        list(workers.run(work, range(5), processes=2, advance=print))
    assert not multiprocessing.active_children()


def test_a_process_that_is_killed_while_it_sends_is_told():
    """Python's own pool waits for the rest of the message, and for the lock of the pipe, for ever."""
    code = r"""
import os, signal, threading
from components.convert.writing import workers
def work(task, advance):
    if task % 5 == 4:
        threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return b"." * (1 << 24)
for i in range(20):
    delay_s = i / 1000
    try:
        list(workers.run(work, range(1000), processes=3, advance=lambda more: None))
    except workers.EndedFromOutside:
        print("told")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "told\n" * 20


def test_no_process_outlives_the_one_that_started_it():
    code = r"""
import os, time
from components.convert.writing import workers
def work(task, advance):
    os.write(1, b"%d\n" % os.getpid())  # in one piece, as others write too
    time.sleep(60)
list(workers.run(work, range(3), processes=3, advance=print))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    started = [psutil.Process(int(process.stdout.readline())) for _ in range(3)]
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_who_is_stopped_at_any_moment_ends():
    """Of programs whose handlers were run amid the work of Python's own pool a third hung."""
    code = r"""
import os, signal, sys, time
from components.convert.writing import workers
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
started = []
while len(started) < 12:
    started.append(os.fork())
    if started[-1] == 0:
        list(workers.run(lambda task, advance: time.sleep(0.003), range(3000), processes=2, advance=lambda more: None))
        os._exit(1)
for i, pid in enumerate(started):
    time.sleep(0.5 if i == 0 else 0.083)
    os.kill(pid, signal.SIGTERM)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == f"{[143] * 12}\n"
