"""A reader of the launcher's output that is slow, asleep or gone: the job does not wait for it."""

import contextlib
import os
import pty
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from train_fakes import SYNC, Bench, wait_until

from components.train.console.outlet import Outlet

pytestmark = pytest.mark.cluster

# More than a pipe and what waits can hold, from two replicas.
FLOOD = "for i in range(8): os.write(1, b''.join(b'%0999d\\n' % (i * 200 + j) for j in range(200)))\n"
MISSING = re.compile(rb"launcher \| ([\d,]+) lines are not shown, which nobody read in time; the log files have them\n")


@contextlib.contextmanager
def ended(launcher: subprocess.Popen, limit_s: float = 15.0):
    try:
        yield launcher.wait(limit_s)
    finally:
        launcher.kill()
        launcher.wait()


@pytest.mark.parametrize(
    ("view", "sink"), [("plain", "pipe"), ("live", "pipe"), ("live", "terminal"), ("plain", "gone")]
)
def test_job_whose_output_nobody_reads_ends_as_it_would(bench: Bench, view: str, sink: str):
    read, write = pty.openpty() if sink == "terminal" else os.pipe()
    if sink == "terminal":
        os.write(read, b"\x13")  # Ctrl-S
    scripts = {"chief_0": FLOOD + "sys.exit(3)", "worker_0": FLOOD, "worker_1": ""}
    launcher = bench.launch(bench.plan(SYNC, **scripts), view=view, stdout=write, TERM="xterm")
    os.close(write)
    if sink == "gone":
        os.close(read)
    with ended(launcher) as code:
        assert code == 3
    assert (bench.path / "logs" / "chief-0.log").stat().st_size == 8 * 200 * 1000
    if sink != "gone":
        os.close(read)


def test_reader_who_comes_back_is_told_what_is_missing_and_gets_what_follows(bench: Bench):
    go, read, write = bench.path / "go", *os.pipe()
    script = FLOOD + f"open({str(go)!r} + '.ready', 'w')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    launcher = bench.launch(bench.plan(SYNC, chief_0=script + "print('after')"), stdout=write)
    os.close(write)
    wait_until(Path(f"{go}.ready").exists)
    wait_until(lambda: (bench.path / "logs" / "chief-0.log").stat().st_size == 8 * 200 * 1000)
    time.sleep(1)  # The last of it is in the log, but waits half a second for room before it is left out.
    shown = b""
    with os.fdopen(read, "rb", buffering=0) as file:
        while not (missing := MISSING.search(shown)):
            shown += file.read(65_536)
        go.touch()
        shown += file.read()
    with ended(launcher) as code:
        assert code == 0
    assert shown.count(b"chief/0 | 0") + int(missing[1].replace(b",", b"")) == 1600
    assert shown.index(b"chief/0 | after\n") > missing.start()


@settings(max_examples=20)
@given(sizes=st.lists(st.integers(1, 600_000), max_size=12), late=st.booleans())
def test_each_line_is_shown_in_order_or_counted_as_missing(sizes: list[int], late: bool):
    read, write = os.pipe()
    outlet = Outlet(write, lambda lines: f"missing {lines}\n")
    got = bytearray()

    def collect() -> None:
        while part := os.read(read, 65_536):
            got.extend(part)

    reader = threading.Thread(target=collect)
    if not late:
        reader.start()
    for number, size in enumerate(sizes):
        outlet.write(f"{number} {'x' * size}\n")
    if late:
        reader.start()
    outlet.close()
    os.close(write)
    reader.join()
    os.close(read)
    number = 0
    for line in got.decode().splitlines():
        word, rest = line.split(" ")
        if word == "missing":
            number += int(rest)
        else:
            assert (int(word), len(rest)) == (number, sizes[number])
            number += 1
    assert number == len(sizes)


@pytest.mark.parametrize("blocking", [True, False])  # Others may share the descriptor and have changed it.
def test_reader_who_is_slower_than_a_flood_gets_all_of_it(blocking: bool):
    read, write = os.pipe()
    os.set_blocking(write, blocking)
    outlet = Outlet(write, str)

    def flood() -> None:
        for _ in range(30):
            outlet.write("x" * 100_000)
        outlet.close()
        os.close(write)

    writer = threading.Thread(target=flood)
    writer.start()
    total = 0
    while part := os.read(read, 65_536):
        total += len(part)
        time.sleep(0.002)
    writer.join()
    os.close(read)
    assert total == 3_000_000
