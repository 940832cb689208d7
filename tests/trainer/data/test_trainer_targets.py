"""What a table holds, and says is to be predicted, is what a batch holds, to the bit, however it is written and read."""

import pathlib
import tempfile

import numpy as np
import pytest
import tensorflow as tf
import trips
from hypothesis import given, settings
from hypothesis import strategies as st

from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options
from trainer.data import records
from trainer.data.placement import choose, provide_files
from trainer.data.reader import open_reader

FLOATS = st.floats(-3e38, 3e38) | st.floats(width=32, allow_nan=False, allow_infinity=False)
WHOLE = st.integers(-(2**63), 2**63 - 1)
COLUMNS = {
    "row": "int",
    "a": "float",
    "b": "float",
    "p": "int",
    "q": "int",
    "n": "int",
    "text": "string",
}
NUMPY = {"int": np.int64, "float": np.float32}
# The label of a schema, and of the values of a row.
TASKS = {
    "one target": ({"regression": "a"}, lambda r: np.float32(r["a"])),
    "two targets": ({"regression": ["b", "a"]}, lambda r: np.array([r["b"], r["a"]], np.float32)),
    "three labels": (
        {"multi_label": {"p": "p", "big": "a > 1", "q": "q"}},
        lambda r: np.array([r["p"], r["a"] > 1, r["q"]], np.int64),
    ),
}


def made(
    directory: pathlib.Path, rows: list[dict], label: dict, texts: bool, **options: object
) -> Manifest:
    """Converts the rows; with texts records differ in length."""
    columns = {name: {"type": kind} for name, kind in COLUMNS.items() if texts or kind != "string"}
    schema = {"name": "rows", "origin": "made up", "columns": columns, "label": label}
    schema["deep"] = [{"column": "row", "numeric": "z_score"}]
    table = [{name: row[name] for name in columns} for row in rows]
    return convert(
        Options(**trips.write(directory, table, schema), output=str(directory / "data"), **options)
    )


def training_batches(manifest: Manifest, data_dir: str, batch: int):
    """The columns of the first steps that are an epoch at least, in every way of reading."""
    examples = manifest.splits["train"].examples
    for mode in ("resident", "mapped"):
        place = provide_files(
            choose(manifest, data_dir=data_dir, budget_bytes=1e9, wish=mode), manifest
        )
        reader = open_reader(place, manifest, global_batch=batch, seed=0, prepare=dict)
        loaded, steps = reader.load(), range(-(-examples // batch))
        yield [reader.batch(loaded, tf.constant(step, tf.int64), 0, batch) for step in steps]


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=settings.default.max_examples // 8)
@given(
    values=st.lists(
        st.tuples(
            FLOATS, FLOATS, st.integers(0, 1), st.integers(0, 1), WHOLE, st.text("ab", max_size=9)
        ),
        min_size=8,
        max_size=20,
    ),
    texts=st.booleans(),
    shards=st.integers(1, 2),
    validation_fraction=st.sampled_from([0.0, 0.3]),
    batch=st.integers(4, 12),
)
def test_rows_are_those_of_the_file_in_every_split_and_way_of_reading(
    task, values, texts, shards, batch, **options
):
    label, expected = TASKS[task]
    rows = [
        {"row": i, **dict(zip("abpqn", row, strict=False)), "text": row[-1] + "x"}
        for i, row in enumerate(values)
    ]
    with tempfile.TemporaryDirectory() as place:
        manifest = made(
            pathlib.Path(place), rows, label, texts, shards=shards, test_fraction=0.2, **options
        )
        data_dir, seen = f"{place}/data", {}

        def check(columns) -> set[int]:
            labels, which = columns["label"].numpy(), columns["row"].numpy().tolist()
            due = np.array([expected(rows[i]) for i in which])
            assert (labels.dtype, labels.shape) == (due.dtype, due.shape)
            assert columns["label"].shape[1:] == manifest.feature("label").shape
            assert labels.tobytes() == due.tobytes()
            assert columns.keys() == {"label", *COLUMNS} - (set() if texts else {"text"})
            for name in columns.keys() - {"label", "text"}:
                values = np.array([rows[i][name] for i in which], NUMPY[COLUMNS[name]])
                assert columns[name].numpy().tobytes() == values.tobytes(), name
            assert not texts or columns["text"].numpy().tolist() == [
                rows[i]["text"].encode() for i in which
            ]
            return set(which)

        for split, part in manifest.splits.items():
            if part.examples:
                seen[split] = set().union(
                    *map(check, records.batches(manifest, data_dir, split, batch))
                )
                assert check(records.load(manifest, data_dir, split)) == seen[split]
                assert len(seen[split]) == part.examples
        assert sorted(i for part in seen.values() for i in part) == list(range(len(rows)))
        for epoch in training_batches(manifest, data_dir, batch):
            assert set().union(*map(check, epoch)) == seen["train"]
