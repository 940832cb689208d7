"""The trainer, whose first worker is killed when a call is done and the chief has yet to copy its result."""

import json
import os
import signal
import sys
import time

from tensorflow.python.distribute.coordinator.values import RemoteValueImpl

from common.cli import run_cli
from components.train.supervision.launcher_log import last_run
from trainer import task

_set_values = RemoteValueImpl._set_values


def _set_values_and_kill(result: RemoteValueImpl, values: object) -> None:
    _set_values(result, values)
    if not hasattr(values, "dtype"):  # An iterator, of which each worker makes one at its start.
        return
    RemoteValueImpl._set_values = _set_values
    (worker,) = [e for e in last_run(job_dir) if e["event"] == "up" and e["replica"] == "worker/0"]
    os.kill(worker["pid"], signal.SIGKILL)
    time.sleep(1)  # The trainer's own thread is the first to miss the result.


job_dir = sys.argv[sys.argv.index("--job-dir") + 1]
if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief":
    RemoteValueImpl._set_values = _set_values_and_kill
run_cli(lambda: task.main(sys.argv[1:]))
