import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("mirrored_program.py")


@pytest.mark.cluster
def test_no_column_of_the_split_goes_from_replica_to_replica_within_the_steps():
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[2])}
    done = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    sent = json.loads(done.stdout.splitlines()[-1])
    assert len(sent["shared"]) == 4  # all columns, where the replicas share them
    assert sent["copies"] == []
