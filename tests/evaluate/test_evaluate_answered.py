import base64
import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from components.evaluate.answered import BYTES, RECORDS, Sample
from trainer.base.manifest import Encoding, Feature, Manifest


def manifest(*features: Feature, table: bool = True) -> Manifest:
    wide = tuple(Encoding(kind="numeric", columns=(f.name,)) for f in features) if table else ()
    said = {
        "name": "t",
        "origin": "t",
        "label": "label",
        "class_names": (),
        "record_bytes": None,
        "splits": {},
        "arguments": {},
    }
    return Manifest(features=features, wide=wide, **said)


def asked(of: Manifest, columns: dict, cuts: list[int], *, raw: bool = False) -> dict | None:
    """What is kept of columns that come in parts."""
    count = len(next(iter(columns.values())))
    sample = Sample(of, examples=count, raw=raw)
    for start, stop in zip([0, *cuts], [*cuts, count], strict=True):
        sample.add({name: tf.constant(values[start:stop]) for name, values in columns.items()})
    return sample.answered(lambda given: given["x"].numpy() * 2, "doubles")


@given(st.integers(1, 300), st.data())
def test_a_few_records_are_kept_evenly_from_all_whatever_the_batches(count, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=4)))
    of, columns = manifest(Feature(name="x", dtype="int64")), {"x": np.arange(count), "label": np.zeros(count)}
    found = asked(of, columns, cuts)
    assert found == asked(of, columns, [])
    kept = found["inputs"]["x"]["values"]
    assert (
        len(kept) == min(RECORDS, count) and found["answers"] == [2 * x for x in kept] and found["output"] == "doubles"
    )
    steps = np.diff(kept)
    assert (
        kept[0] == 0 and len(set(steps.tolist())) <= 1 and (len(kept) < 2 or count - kept[-1] < 2 * steps[0] + RECORDS)
    )


@pytest.mark.parametrize(("side", "kept"), [(8, RECORDS), (512, BYTES // 512**2), (1100, 0)])
def test_pixels_are_kept_in_a_bounded_number_of_bytes(side, kept):
    images = np.arange(20, dtype=np.uint8).repeat(side * side).reshape(20, side, side, 1)
    found = asked(manifest(Feature(name="x", dtype="uint8", shape=(side, side, 1)), table=False), {"x": images}, [])
    if not kept:
        assert found is None
        return
    assert found["inputs"]["x"]["shape"] == [kept, side, side, 1]
    assert base64.b64decode(found["inputs"]["x"]["base64"]) == images[:: 20 // kept][:kept].tobytes()


def test_what_was_missing_is_sent_as_missing_to_a_model_that_knows_defaults():
    of = manifest(
        Feature(name="x", dtype="float32", default=0.1, missing=("", "-1")),
        Feature(name="city", dtype="string", default="Ulm", missing=("-",)),
        Feature(name="rank", dtype="int64", default=7, missing=("", "-1")),
        Feature(name="year", dtype="int64", default=7, missing=("",)),
    )
    columns = {"x": np.float32([0.1, 0.5]), "city": np.array([b"Ulm", "Köln".encode()])}
    columns |= {"rank": np.array([7, 2]), "year": np.array([7, 2])}
    found = asked(of, columns, [], raw=True)["inputs"]
    assert {name: given["values"] for name, given in found.items()} == {
        "x": [None, 0.5],
        "city": ["-", "Köln"],
        "rank": [-1, 2],
        "year": [7, 2],  # there is no whole number that says so
    }
    assert "NaN" not in json.dumps(found)
    assert asked(of, columns, [])["inputs"]["city"]["values"] == ["Ulm", "Köln"]
