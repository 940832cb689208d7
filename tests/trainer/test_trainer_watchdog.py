import time

import pytest

from tests.programs import run_python

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
    env = {"CLOUD_ML_JOB_ID": "7"}
    if watched:
        env["TRAINER_STATUS"] = str(tmp_path / "status")
    start = time.monotonic()
    printed = run_python("-c", PROGRAM, tmp_path / "job", 5 if watched else 60, env=env, code=code)
    assert (" in hangs" in printed) is not watched
    assert time.monotonic() - start < 50
