import operator as operators
import types

import numpy as np
import pyarrow as pa
import pytest
import trips
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from common.manifest import MULTI_LABEL, REGRESSION, Manifest
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.tables.expressions import parse
from components.convert.tables.labels import evaluate
from components.convert.tables.schema import Column
from components.convert.tables.table_block import ARROW, TableBlock

SCHEMA = {
    "name": "weather",
    "origin": "made up",
    "columns": {
        "day": {"type": "int"},
        "rain": {"type": "float", "unit": "mm"},
        "wind": {"type": "float", "default": 0.0},
        "flood": {"type": "int"},
    },
    "deep": [{"column": "day", "numeric": "z_score"}],
}
COMPARES = {
    **{"greater": operators.gt, "greater_equal": operators.ge, "less": operators.lt, "less_equal": operators.le},
    "equal": operators.eq,
}
WHOLE = st.none() | st.integers(2**53 - 2, 2**53 + 2)  # of which a float holds some
ROWS = [{"day": i, "rain": i / 10, "wind": i % 7, "flood": int(i % 5 == 0)} for i in range(90)]


def read(tmp_path, label, rows=ROWS, **changes) -> Manifest:
    given = trips.write(tmp_path, rows, {**SCHEMA, "label": label, **changes})
    fractions = {"validation_fraction": 0, "test_fraction": 0.3}
    return convert(Options(**given, output=str(tmp_path / "out"), shards=2, **fractions))


def labels(tmp_path, manifest: Manifest, examples, split: str = "train") -> dict[int, list]:
    """The label of each day, as the official library parses it."""
    files = [tmp_path / "out" / shard.file for shard in manifest.splits[split].shards]
    return {record["day"][0]: record["label"] for file in files for record in examples(file.read_bytes())}


@pytest.mark.parametrize("written", ["rain", ["rain"], {"rain": "rain"}])
def test_one_target_is_a_number_of_32_bits(tmp_path, examples, written):
    manifest = read(tmp_path, {"regression": written})
    assert Manifest.load(tmp_path / "out") == manifest
    assert (manifest.task, manifest.targets, manifest.class_names) == (REGRESSION, ("rain",), ())
    label = manifest.feature("label")
    assert (label.dtype, label.shape, label.num_bytes, label.value_range) == ("float32", (), 4, None)
    assert [feature.name for feature in manifest.inputs] == ["day"]
    found = {split: labels(tmp_path, manifest, examples, split) for split in ("train", "test")}
    assert {**found["train"], **found["test"]} == {i: [np.float32(i / 10)] for i in range(90)}
    train, test = (manifest.splits[split] for split in ("train", "test"))
    assert train.class_histogram == test.class_histogram == ()
    for split, part in (("train", train), ("test", test)):
        numbers = [value for (value,) in found[split].values()]
        summary = part.summaries["label.rain"]
        assert summary.mean == pytest.approx(np.mean(numbers)) and summary.max == max(numbers)


def test_several_targets_may_be_computed(tmp_path, examples):
    sums = {"rain": "rain", "worst": {"plus": ["rain", {"times": [2, "wind"]}]}}
    manifest = read(tmp_path, {"regression": sums})
    assert (manifest.targets, manifest.feature("label").shape) == (("rain", "worst"), (2,))
    assert manifest.feature("label").num_bytes == 8
    for day, label in labels(tmp_path, manifest, examples).items():
        assert label == [np.float32(day / 10), np.float32(day / 10 + 2 * (day % 7))]
    assert manifest.splits["train"].summaries.keys() >= {"label.rain", "label.worst"}


def test_several_labels_are_conditions_or_columns_of_0_and_1(tmp_path, examples):
    conditions = {"wet": {"greater": ["rain", 3]}, "windy": {"greater": ["wind", 4]}, "flooded": "flood"}
    manifest = read(tmp_path, {"multi_label": conditions})
    assert (manifest.task, manifest.targets) == (MULTI_LABEL, ("wet", "windy", "flooded"))
    label = manifest.feature("label")
    assert (label.dtype, label.shape, label.num_bytes, label.value_range) == ("int64", (3,), 3, (0.0, 1.0))
    for split, part in manifest.splits.items():
        found = labels(tmp_path, manifest, examples, split) if part.examples else {}
        assert found == {i: [int(i > 30), int(i % 7 > 4), int(i % 5 == 0)] for i in found}
        assert part.class_histogram == tuple(sum(column) for column in zip([0, 0, 0], *found.values(), strict=True))
        assert not any(name.startswith("label") for name in part.summaries)


@pytest.mark.parametrize("written", [{"multi_label": {"wet": "wet", "dry": {"not": "wet"}}}, "condition", "column"])
def test_booleans_are_conditions_labels_and_classes(tmp_path, examples, written):
    several = written if isinstance(written, dict) else {written: "wet", "classes": ["false", "true"]}
    rows = [{**row, "wet": ("F", " true", "no", "YES")[row["day"] % 4]} for row in ROWS]
    columns = {**SCHEMA["columns"], "wet": {"type": "bool"}}
    manifest = read(tmp_path, several, rows, columns=columns, filter={"any": ["wet", {"greater": ["day", 9]}]})
    assert manifest.feature("wet").boolean and manifest.feature("wet").dtype == "string"
    found = labels(tmp_path, manifest, examples)
    assert found == {i: [i % 2, 1 - i % 2] if isinstance(written, dict) else [i % 2] for i in found}
    assert min(found) % 2 and {i % 2 for i in found} == {0, 1}


def without(column: str, *days: int, rows=ROWS) -> list[dict]:
    return [{**row, column: "" if row["day"] in days else row[column]} for row in rows]


NO_RAIN = without("rain", 40, 41, 50)
FLOODS = {"multi_label": {"wet": {"less": ["wind", 3]}, "flood": "flood"}}
SQUARE = {"square": {"times": ["rain", "rain"]}}
TWO = {"rain": "rain", "wind": {"times": [2, "wind"]}, "flood": "flood"}


@pytest.mark.parametrize(
    ("label", "rows", "message"),
    [
        ({"regression": "rain"}, NO_RAIN, "line 42: rain is missing.*'filter: {present: rain}'"),
        (
            {"regression": TWO},
            without("flood", 50, 60, rows=NO_RAIN),
            r"line 42: rain is missing.*'filter: {all: \[{present: flood}, {present: rain}\]}'",
        ),
        (FLOODS, without("flood", 5, 60), r"line 7: flood is missing.*: \[{present: flood}, {present: wind}\]}'"),
    ],
)
def test_the_first_row_without_a_target_is_told_with_a_filter_for_all_such(tmp_path, label, rows, message):
    with pytest.raises(UserError, match=rf"rows\.csv: {message}"):
        read(tmp_path, label, rows)
    assert not (tmp_path / "out").exists()


def test_the_filter_leaves_rows_without_a_target_out(tmp_path, examples):
    manifest = read(tmp_path, {"regression": "rain"}, NO_RAIN, filter={"present": "rain"})
    assert sum(split.examples for split in manifest.splits.values()) == 87
    assert {40, 41, 50}.isdisjoint(labels(tmp_path, manifest, examples))


def test_a_condition_may_ask_whether_a_value_is_present(tmp_path):
    rows = without("wind", 40, 41, 50)
    manifest = read(tmp_path, {"condition": {"not": {"present": "wind"}}, "classes": ["known", "unknown"]}, rows)
    assert sum(split.class_histogram[1] for split in manifest.splits.values()) == 3


@given(
    rows=st.lists(
        st.tuples(WHOLE, WHOLE, st.sampled_from([None, "", "x"]), st.sampled_from([None, "", "x"])), min_size=1
    ),
    operator=st.sampled_from(sorted(COMPARES)),
    number=st.integers(2**53 - 2, 2**53 + 2),
)
def test_what_is_missing_in_other_rows_changes_no_comparison_and_two_missing_values_are_not_equal(
    rows, operator, number
):
    columns = dict(zip("abst", zip(*rows, strict=True), strict=True))
    kinds = {"a": "int", "b": "int", "s": "string", "t": "string"}
    arrays = {name: pa.array(values, ARROW[kinds[name]]) for name, values in columns.items()}
    schema = types.SimpleNamespace(
        columns={name: Column(name=name, header=name, type=kind) for name, kind in kinds.items()}
    )
    block = TableBlock(columns=pa.RecordBatch.from_pydict(arrays), path="", positions=np.arange(len(rows)), locate=str)
    for node, expected in (
        ({operator: ["a", number]}, [a is not None and COMPARES[operator](a, number) for a, *_ in rows]),
        ({operator: ["a", "b"]}, [None not in (a, b) and COMPARES[operator](a, b) for a, b, *_ in rows]),
        ({"equal": ["s", "t"]}, [s is not None and s == t for *_, s, t in rows]),
        ({"greater": [{"minus": ["a", "b"]}, 0]}, [None not in (a, b) and float(a) > float(b) for a, b, *_ in rows]),
    ):
        for condition, due in ((node, expected), ({"not": node}, [not one for one in expected])):
            found = evaluate(parse(condition, kinds, "filter"), block, schema)
            assert (type(found), found.tolist()) == (np.ndarray, due)


@pytest.mark.parametrize(
    ("label", "change", "message"),
    [
        ({"regression": "rain"}, {"rain": "nan"}, r"line 5: rain: 'nan' is no finite 32-bit number"),
        ({"regression": "rain"}, {"rain": "-1e39"}, r"line 5: rain: '-1e39' is no finite 32-bit number"),
        ({"regression": SQUARE}, {"rain": "3e20"}, r"line 5: square: 9e\+40 is no finite 32-bit number"),
        (FLOODS, {"flood": 2}, "line 5: flood: 2 is neither"),
    ],
)
def test_what_is_no_number_or_no_label_is_refused_with_its_row(tmp_path, label, change, message):
    with pytest.raises(UserError, match=rf"rows\.csv: {message}"):
        read(tmp_path, label, [{**row, **(change if row["day"] == 3 else {})} for row in ROWS])
