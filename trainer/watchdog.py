"""Ends a job that does nothing any more where nobody else watches it.

The launchers here look at status files. Vertex AI looks at nothing: a job that hangs is paid for
until its time limit, seven days if there is none.
"""

import faulthandler
import os
import sys
import threading
import time

from trainer.cluster.shutdown import Stop, failed_code
from trainer.job.journal import STATUS, Journal

# Evaluating, caching data and saving show signs of life meanwhile; what would compile for longer
# than this is not known.
_SILENT_S = 1800.0


def watch(journal: Journal, stop: Stop, *, silent_s: float = _SILENT_S) -> None:
    """Has a thread end this replica, on whom the others depend, after `silent_s` without a sign of life in its journal.

    What each of its threads is doing then is in its log. Where a launcher watches, it does nothing.
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
