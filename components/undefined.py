"""Figures that are no numbers, as a metric that some records do not define: null in JSON, which has no NaN, a dash for people.

json.dumps(plain({"auc": math.nan}), allow_nan=False)     # {"auc": null}
figure(None)     # "-"
"""

import json
from typing import Any


def plain(value: Any) -> Any:
    """What JSON makes of it, with None for every float, of whatever library, that is not finite."""
    return json.loads(json.dumps(value, default=float), parse_constant=lambda _: None)


def figure(value: float | None) -> str:
    """As people read it."""
    return "-" if value is None else f"{value:.4f}"
