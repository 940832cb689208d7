import os
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.cluster
PROGRAM = """
import sys, time
from trainer.job.journal import Journal
from trainer import watchdog
from trainer.cluster.shutdown import Stop
journal = Journal(sys.argv[1], "chief-0")
watchdog.watch(journal, Stop.install(), silent_s=3.0)
for _ in range(15):
    journal.status("training", 1)
    time.sleep(0.1)
def hangs():
    time.sleep(float(sys.argv[2]))
hangs()
"""


@pytest.mark.parametrize(("watched", "code"), [(False, 134), (True, 0)])
def test_hanging_chief_ends_unless_watched(tmp_path, watched, code):
    env = {**os.environ, "CLOUD_ML_JOB_ID": "7"}
    if watched:
        env["TRAINER_STATUS"] = str(tmp_path / "status")
    start = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "job"), "5" if watched else "60"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == code, ended.stderr
    assert (" in hangs" in ended.stderr) is not watched
    assert time.monotonic() - start < 50
