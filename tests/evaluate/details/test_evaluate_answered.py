import base64
import json
from types import SimpleNamespace

import numpy as np
import pytest

from components.evaluate.details.answered import BYTES, RECORDS, places, plain
from trainer.base.manifest import Feature


def taken(count: int, **about) -> np.ndarray:
    return places(SimpleNamespace(inputs=[Feature(name="x", **about)]), count)


@pytest.mark.parametrize(("count", "kept"), [(3, range(3)), (300, range(0, 18 * 16, 18))])
def test_a_few_records_are_kept_evenly(count, kept):
    assert taken(count, dtype="int64").tolist() == [*kept]


@pytest.mark.parametrize(("side", "kept"), [(8, RECORDS), (512, BYTES // 512**2), (1100, 0)])
def test_pixels_are_kept_in_a_bounded_number_of_bytes(side, kept):
    assert len(taken(20, dtype="uint8", shape=(side, side, 1))) == kept
    images = np.arange(2, dtype=np.uint8).repeat(side * side).reshape(2, side, side, 1)
    found = plain(Feature(name="x", dtype="uint8", shape=(side, side, 1)), images, raw=True)
    assert found["shape"] == [2, side, side, 1] and base64.b64decode(found["base64"]) == images.tobytes()


@pytest.mark.parametrize(
    ("feature", "values", "sent"),
    [
        ({"dtype": "float32", "default": 0.1, "missing": ("", "-1")}, np.float32([0.1, 0.5]), [None, 0.5]),
        ({"dtype": "string", "default": "Ulm", "missing": ("-",)}, [b"Ulm", "Köln".encode()], ["-", "Köln"]),
        ({"dtype": "int64", "default": 7, "missing": ("", "-1")}, [7, 2], [-1, 2]),
        ({"dtype": "int64", "default": 7, "missing": ("",)}, [7, 2], [7, 2]),  # there is no whole number that says so
    ],
)
def test_what_was_missing_is_sent_as_missing_to_a_model_that_knows_defaults(feature, values, sent):
    column = Feature(name="x", **feature)
    assert plain(column, np.array(values), raw=True)["values"] == sent
    as_it_is = plain(column, np.array(values), raw=False)["values"]
    assert as_it_is[0] == pytest.approx(column.default) and json.dumps(sent, allow_nan=False)
