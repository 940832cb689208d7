"""Ends a job that hangs, where no launcher watches it.

The launchers here watch status files, and Vertex AI watches nothing: a job that hangs is paid for
until its time limit, seven days if there is none.
"""

import faulthandler
import os
import sys
import threading
import time

from trainer.cluster.shutdown import Stop, failed_code
from trainer.job.journal import STATUS, Journal

# Evaluation, copying of data and saving show signs of life all the time. No model is known that
# compiles for longer than this.
_SILENT_S = 1800.0


def watch(journal: Journal, stop: Stop, *, silent_s: float = _SILENT_S) -> None:
    """Starts a thread that ends this replica if its journal shows no sign of life for `silent_s`.

    The others depend on this replica. Before it ends, the stacks of all threads are written to
    stderr. Nothing is started if a launcher watches the status file, which the environment variable
    `TRAINER_STATUS` names.

    Args:
      journal: Journal of this replica.
      stop: Ends the process with the code of `shutdown.failed_code`, after which the same command
        may resume the job.
      silent_s: Seconds without a sign of life.
    """

    def wait() -> None:
        while journal.silence_s < silent_s:
            time.sleep(min(silent_s / 10, 10.0))
        print(
            f"no sign of life for {silent_s:.0f} s; this is what each thread does:", file=sys.stderr
        )
        faulthandler.dump_traceback(all_threads=True)
        stop.end(failed_code())

    if STATUS not in os.environ:
        threading.Thread(target=wait, name="watchdog", daemon=True).start()
