"""The merged output, with readers that are slow, asleep or gone: the job waits for none of them."""

import os
import pty

import pytest
from train_fakes import ONE

pytestmark = pytest.mark.cluster

# More than a pipe can hold.
FLOOD = (
    "for i in range(8): os.write(1, b''.join(b'%0999d\\n' % (i * 200 + j) for j in range(200)))\n"
)
LINES = [f"{i:0999d}" for i in range(1600)]


@pytest.mark.parametrize("sink", ["pipe", "terminal", "gone"])
def test_unread_output_blocks_no_job(bench, sink):
    read, write = pty.openpty() if sink == "terminal" else os.pipe()
    if sink == "terminal":
        os.write(read, b"\x13")  # Ctrl-S
    launcher = bench.launch(ONE, stdout=write, chief_0=FLOOD + "sys.exit(3)")
    os.close(write)
    if sink == "gone":
        os.close(read)
    assert launcher.wait() == 3
    assert (bench.path / "logs" / "chief-0.log").read_text().splitlines() == LINES
    if sink != "gone":
        os.close(read)
