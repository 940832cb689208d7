import json
import math

import numpy as np
import pytest

from common.documents import plain
from common.pages import figure


def test_what_is_no_number_is_null_wherever_it_is_and_a_dash_to_people():
    odd = [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("inf")]
    given = {"a": (1, True, "NaN", None), "b": [{"c": each} for each in (*odd, np.float32(0.5))]}
    found = plain(given)
    assert found == {"a": [1, True, "NaN", None], "b": [*[{"c": None}] * 5, {"c": 0.5}]}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [figure(plain(value)) for value in (*odd, 0.98765, 1)] == [
        *["-"] * 5,
        "0.9877",
        "1.0000",
    ]
    with pytest.raises((TypeError, ValueError)):
        plain(object())
