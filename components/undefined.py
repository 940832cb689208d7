"""Figures that are no numbers, as a metric that some records do not define: null in JSON, which has no NaN, a dash for people.

json.dumps(plain({"auc": math.nan}), allow_nan=False)     # {"auc": null}
figure(None)     # "-"
"""

import math
import numbers
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """The same with None for every float in it, of whatever library, that is not finite."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        return float(value) if math.isfinite(value) else None
    return value


def figure(value: float | None) -> str:
    """As people read it."""
    return "-" if value is None else f"{value:.4f}"
