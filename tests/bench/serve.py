"""The other end of `race.Child`; no package but Python's own, since it runs in other environments too."""

import json
import sys
from collections.abc import Callable


def serve(lap: Callable[[], float]) -> None:
    """Runs in a child: a lap for every line that comes in."""
    for _ in sys.stdin:
        print(json.dumps({"examples": lap()}), flush=True)
