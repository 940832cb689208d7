import math

import numpy as np
import pytest

from common.documents import plain
from common.pages import figure


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, np.float32("nan")], ids=str)
def test_no_number_is_null(odd):
    """And a dash to people."""
    found = plain({"a": (1, True, "NaN", None), "b": [{"c": odd}, np.float32(0.5)]})
    assert found == {"a": [1, True, "NaN", None], "b": [{"c": None}, 0.5]}
    assert [figure(plain(value)) for value in (odd, 0.98765)] == ["-", "0.9877"]
