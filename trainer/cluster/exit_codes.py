"""Exit codes of a replica, by which a launcher decides whether it starts again.

The launchers here restart whatever ends with another code than 0, and count 143 apart. Vertex AI restarts of itself
only what looks like a crash of the machine's: its documentation ("Understand the custom training service") has 6, 11,
134 and 139 tried again, three times, and every other code but 0 ends the job for good as the user's own error. So
there a replica that has saved, or has lost others, ends as one that was aborted.
"""

import os

ON_VERTEX = "CLOUD_ML_JOB_ID"  # set by its custom jobs
_SAVED = 143  # 128 + SIGTERM
_ABORTED = 134  # 128 + SIGABRT


def saved() -> int:
    """Returns the code of a replica that was told to stop: all is saved, and the same command goes on."""
    return _ABORTED if ON_VERTEX in os.environ else _SAVED


def failed(*, others: bool) -> int:
    """Returns the code of an error; `others` if another replica, a machine or a store has failed, so that the same command may go on."""
    return _ABORTED if others and ON_VERTEX in os.environ else 1
