"""The merged output, with readers that are slow, asleep or gone: the job waits for none of them."""

import os
import pty
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from train_fakes import ONE, SYNC, Bench, of, wait_until

from components.train.supervision.output import Output

pytestmark = pytest.mark.cluster

# More than a pipe can hold.
FLOOD = (
    "for i in range(8): os.write(1, b''.join(b'%0999d\\n' % (i * 200 + j) for j in range(200)))\n"
)
LINES = [f"{i:0999d}" for i in range(1600)]


@pytest.mark.parametrize("sink", ["pipe", "terminal", "gone"])
def test_unread_output_blocks_no_job(bench: Bench, sink: str):
    read, write = pty.openpty() if sink == "terminal" else os.pipe()
    if sink == "terminal":
        os.write(read, b"\x13")  # Ctrl-S
    scripts = {"chief_0": FLOOD + "sys.exit(3)", "worker_0": FLOOD, "worker_1": ""}
    launcher = bench.launch(bench.plan(SYNC, **scripts), stdout=write, TERM="xterm")
    os.close(write)
    if sink == "gone":
        os.close(read)
    assert launcher.wait() == 3
    assert (bench.path / "logs" / "chief-0.log").stat().st_size == 8 * 200 * 1000
    if sink != "gone":
        os.close(read)


def test_late_reader_misses_nothing(bench: Bench):
    read, write = os.pipe()
    flooded = bench.path / "flooded"
    launcher = bench.launch(
        bench.plan(ONE, chief_0=f"{FLOOD}open({str(flooded)!r}, 'w')"), stdout=write
    )
    os.close(write)
    wait_until(flooded.exists)
    with os.fdopen(read) as file:
        assert of("chief/0", file.read().splitlines()) == LINES
    assert launcher.wait() == 0


def test_stopped_launcher_blocks_no_replica(bench: Bench):
    go, done = bench.path / "go", bench.path / "done"
    script = (
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n{FLOOD}open({str(done)!r}, 'w')"
    )
    launcher = bench.start(bench.plan(ONE, chief_0=script))
    launcher.send_signal(signal.SIGSTOP)
    go.touch()
    wait_until(done.exists)
    launcher.send_signal(signal.SIGCONT)
    output = launcher.communicate()[0]
    assert launcher.returncode == 0
    assert of("chief/0", output.splitlines()) == LINES


def test_nonblocking_descriptor_loses_nothing():
    """The output shares its descriptor with programs that may have changed it."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with ThreadPoolExecutor() as pool, os.fdopen(read, "rb") as file:
        written = pool.submit(file.read)
        with Output(write) as output:
            output.lines("chief/0", ["x" * 999_989] * 3)
        os.close(write)
        assert len(written.result()) == 3_000_000
