"""A batch holds the columns and targets of the table, to the bit."""

import itertools
import pathlib
import tempfile
from collections.abc import Iterable, Iterator

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
KINDS = {"row": "int", "a": "float", "b": "float", "p": "int", "q": "int", "n": "int"}
NUMPY = {"int": np.int64, "float": np.float32}
ROWS = st.fixed_dictionaries(
    {"a": FLOATS, "b": FLOATS, "p": st.integers(0, 1), "q": st.integers(0, 1)}
    | {"n": st.integers(-(2**63), 2**63 - 1), "text": st.text("ab", min_size=1, max_size=9)}
)
# The label of a schema, and of a row.
TASKS = {
    "one target": ({"regression": "a"}, lambda r: np.float32(r["a"])),
    "two targets": ({"regression": ["b", "a"]}, lambda r: np.array([r["b"], r["a"]], np.float32)),
    "three labels": (
        {"multi_label": {"p": "p", "big": "a > 1", "q": "q"}},
        lambda r: np.array([r["p"], r["a"] > 1, r["q"]], np.int64),
    ),
}


def readings(
    manifest: Manifest, data_dir: str, batch: int
) -> Iterator[tuple[str, Iterable[records.Columns]]]:
    """Splits, in every way of reading them; of training an epoch at least."""
    for split, part in manifest.splits.items():
        if part.examples:
            yield split, records.batches(manifest, data_dir, split, batch)
            yield split, [records.load(manifest, data_dir, split)]
    for mode in ("resident", "mapped"):
        choice = choose(manifest, data_dir=data_dir, budget_bytes=0, wish=mode)
        place = provide_files(choice, manifest)
        reader = open_reader(place, manifest, global_batch=batch, seed=0, prepare=dict)
        loaded, steps = reader.load(), range(-(-manifest.splits["train"].examples // batch))
        yield "train", [reader.batch(loaded, tf.constant(i, tf.int64), 0, batch) for i in steps]


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=settings.default.max_examples // 8)
@given(
    rows=st.lists(ROWS, min_size=8, max_size=20),
    has_texts=st.booleans(),
    shards=st.integers(1, 2),
    validation_fraction=st.sampled_from([0.0, 0.3]),
    batch=st.integers(4, 12),
)
def test_rows_are_those_of_file(task, rows, has_texts, batch, **options):
    """Rows are those of the file in every split and way of reading, of one length or not."""
    label, expected = TASKS[task]
    kinds = KINDS | ({"text": "string"} if has_texts else {})
    schema = {"name": "rows", "origin": "made up", "label": label}
    schema["columns"] = {name: {"type": kind} for name, kind in kinds.items()}
    schema["deep"] = [{"column": "row", "numeric": "z_score"}]
    rows = [{**row, "row": i} for i, row in enumerate(rows)]

    def check(columns: records.Columns) -> list[int]:
        numbers = columns["row"].numpy().tolist()
        labels = np.array([expected(rows[i]) for i in numbers])
        actual = columns["label"].numpy()
        assert (actual.dtype, actual.shape) == (labels.dtype, labels.shape)
        assert actual.tobytes() == labels.tobytes()
        assert columns.keys() == {"label", *kinds}
        for name, kind in kinds.items():
            values = [rows[i][name] for i in numbers]
            if kind == "string":
                assert [text.decode() for text in columns[name].numpy()] == values
            else:
                assert columns[name].numpy().tobytes() == np.array(values, NUMPY[kind]).tobytes()
        return numbers

    with tempfile.TemporaryDirectory() as place:
        table = [{name: row[name] for name in kinds} for row in rows]
        files = trips.write(pathlib.Path(place), table, schema)
        data_dir = f"{place}/data"
        manifest = convert(Options(**files, output=data_dir, test_fraction=0.2, **options))
        seen = {}
        for split, batches in readings(manifest, data_dir, batch):
            numbers = {*itertools.chain(*map(check, batches))}
            assert seen.setdefault(split, numbers) == numbers
    assert sorted(itertools.chain(*seen.values())) == list(range(len(rows)))
