"""The other end of `race.Child`; it needs Python alone, as other environments have it too."""

import json
import sys


def serve(lap):
    """Runs in a child: a lap for every line that comes in."""
    for _ in sys.stdin:
        print(json.dumps({"examples": lap()}), flush=True)
