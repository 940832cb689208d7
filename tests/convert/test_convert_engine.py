import multiprocessing
import os
import signal
import sys
import time

import psutil
import pytest

from common.errors import UserError
from components.convert import engine
from tests.errors import user_error
from tests.programs import run_python, start_python

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def forking(monkeypatch):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    if sys.platform != "linux":
        pytest.skip("processes are forked on Linux only")


@pytest.mark.parametrize("processes", [1, 3, 30])
def test_each_task_is_called_once(processes):
    results = dict(engine.run(lambda task: (task**2, os.getpid()), range(7), processes=processes))
    assert {i: value for i, (value, _) in results.items()} == {i: i**2 for i in range(7)}
    assert (os.getpid() in {pid for _, pid in results.values()}) == (processes == 1)
    assert not multiprocessing.active_children()


def test_nothing_is_forked_with_tensorflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", object())
    results = engine.run(lambda task: os.getpid(), range(3), processes=3)
    assert {pid for _, pid in results} == {os.getpid()}


@pytest.mark.parametrize("error", [UserError("trips.csv: line 3"), OSError(28, "No space left")])
def test_error_of_task_is_raised(error):
    def fail_or_sleep(task):
        if task == 3:
            raise error
        time.sleep(3600)

    with pytest.raises(type(error)) as caught:
        list(engine.run(fail_or_sleep, [3, 0, 1, 2], processes=4))
    assert caught.value.args == error.args
    assert not multiprocessing.active_children()


def test_kill_amid_results_is_noticed():
    code = r"""
import os, signal, threading
from components.convert import engine
def send(task):
    if task % 5 == 4:
        threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return b"." * (1 << 24)
for i in range(20):
    delay_s = i / 1000
    try:
        for _ in engine.run(send, range(1000), processes=3):
            pass
    except engine.ProcessLostError as error:
        print(error)
"""
    printed = run_python("-c", code)
    assert printed.count("ended from outside, perhaps for want of memory") == 20


def test_killed_last_process_is_noticed():
    def end(task):
        if task:
            os.kill(os.getpid(), signal.SIGKILL)

    with user_error("ended from outside"):
        list(engine.run(end, range(2), processes=2))


def test_processes_end_with_their_parent():
    code = r"""
import os, time
from components.convert import engine
def sleep(task):
    os.write(1, b"%d\n" % os.getpid())  # In one piece, as others write too.
    time.sleep(60)
list(engine.run(sleep, range(3), processes=3))
"""
    process = start_python("-c", code)
    started = [psutil.Process(int(process.stdout.readline())) for _ in range(3)]
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_stop_at_any_moment():
    code = r"""
import os, signal, sys, time
from components.convert import engine
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
started = []
while len(started) < 12:
    started.append(os.fork())
    if started[-1] == 0:
        list(engine.run(lambda task: time.sleep(0.003), range(3000), processes=2))
        os._exit(1)
for i, pid in enumerate(started):
    time.sleep(0.5 if i == 0 else 0.083)
    os.kill(pid, signal.SIGTERM)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started])
"""
    assert run_python("-c", code) == f"{[143] * 12}\n"
