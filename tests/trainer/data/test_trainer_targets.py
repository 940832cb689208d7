"""A batch holds the columns and targets of the table, to the bit."""

import itertools
import pathlib
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import trips
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import reader_of

from common.manifest import Manifest
from trainer.data import records

FLOATS = st.floats(-3e38, 3e38) | st.floats(width=32, allow_nan=False, allow_infinity=False)
KINDS = {"row": "int", "a": "float", "b": "float", "p": "int", "n": "int", "text": "string"}
NUMPY = {"int": np.int64, "float": np.float32, "string": "S9"}
ROWS = st.fixed_dictionaries(
    {"a": FLOATS, "b": FLOATS, "p": st.integers(0, 1), "n": st.integers(-(2**63), 2**63 - 1)}
    | {"text": st.text("ab", min_size=1, max_size=9)}
)
# The label of a schema, and of a row.
TASKS = {
    "one target": ({"regression": "a"}, lambda r: np.float32(r["a"])),
    "two targets": ({"regression": ["b", "a"]}, lambda r: np.array([r["b"], r["a"]], np.float32)),
    "two labels": (
        {"multi_label": {"big": "a > 1", "p": "p"}},
        lambda r: np.array([r["a"] > 1, r["p"]], np.int64),
    ),
}


def readings(manifest, data_dir, batch):
    """Splits, in every way of reading them; of training an epoch at least."""
    read = {}
    for split in [name for name, part in manifest.splits.items() if part.examples]:
        read[split] = [*records.batches(manifest, data_dir, split, batch)]
        read[f"{split} whole"] = [records.load(manifest, data_dir, split)]
    for mode in ("resident", "mapped"):
        reader = reader_of(manifest, data_dir, mode, batch)
        loaded, steps = reader.load(), range(-(-manifest.split("train").examples // batch))
        read[f"train {mode}"] = [reader.batch(loaded, tf.constant(i), 0, batch) for i in steps]
    return read


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=settings.default.max_examples // 8)
@given(st.lists(ROWS, min_size=10, max_size=20), st.booleans(), st.integers(4, 12))
@pytest.mark.long
def test_rows_are_those_of_file(task, rows, has_texts, batch):
    """Rows are those of the file in every split and way of reading, of one length or not."""
    label, expected = TASKS[task]
    rows = [{**row, "row": i} for i, row in enumerate(rows)]
    kinds = {name: kind for name, kind in KINDS.items() if has_texts or name != "text"}
    schema = {
        "name": "rows",
        "origin": "made up",
        "label": label,
        "columns": {name: {"type": kind} for name, kind in kinds.items()},
        "deep": [{"column": "row", "numeric": "z_score"}],
    }

    def check(columns):
        numbers = columns["row"].numpy().tolist()
        wanted = {"label": np.array([expected(rows[i]) for i in numbers])}
        for name, kind in kinds.items():
            wanted[name] = np.array([rows[i][name] for i in numbers], NUMPY[kind])
        assert columns.keys() == wanted.keys()
        for name, values in wanted.items():
            actual = columns[name].numpy()
            assert actual.shape == values.shape and actual.dtype in (values.dtype, object)
            assert repr(actual.tolist()) == repr(values.tolist())  # which tells -0.0 from 0.0
        return numbers

    with tempfile.TemporaryDirectory() as place:
        table = [{name: row[name] for name in kinds} for row in rows]
        fractions = {"test_fraction": 0.2, "validation_fraction": 0.2}
        data = trips.make(pathlib.Path(place), table, schema, **fractions)
        read = readings(Manifest.load(data), str(data), batch)
        seen = {name: [*itertools.chain(*map(check, batches))] for name, batches in read.items()}
    for name, numbers in seen.items():
        assert {*numbers} == {*seen[name.split()[0]]}
    assert seen["train resident"] == seen["train mapped"]
    assert {*itertools.chain(*seen.values())} == {*range(len(rows))}
