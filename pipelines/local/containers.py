"""The containers of a run's steps: `python -m pipelines.local.containers RUN` removes those of a run whose process is gone."""

import sys
import time

from common.container_engine import remove_containers
from pipelines.local.record import RunRecord

_LATE_S = 3.0  # Until the engine has made what the process had asked it for when it was killed.


def remove(run: str) -> None:
    """Removes all that there are, whether they run or not."""
    remove_containers(f"{RunRecord.label}={run}")


if __name__ == "__main__":
    remove(sys.argv[1])
    time.sleep(_LATE_S)
    remove(sys.argv[1])
