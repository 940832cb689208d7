import math

import numpy as np

from common.documents import plain
from common.pages import figure


def test_no_number_is_null():
    """And a dash to people."""
    odd = [math.nan, math.inf, -math.inf, np.float32("nan")]
    values = plain({"a": (1, True, "NaN", None), "b": [{"c": odd}, np.float32(0.5)]})
    assert values == {"a": [1, True, "NaN", None], "b": [{"c": [None] * 4}, 0.5]}
    assert [figure(value) for value in (None, 0.98765)] == ["-", "0.9877"]
