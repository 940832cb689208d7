"""Columns of tables: their types, missing values, labels, vocabularies and splits."""

import pytest
from staged import INPUT, columns, make_schema, read, read_csv, rows, write_csv

from common.errors import UserError
from components.convert.schema import Input, Label, SplitRule
from components.convert.sources import staging
from components.convert.sources.tables import TextSource


def test_booleans_times_and_marks(tmp_path):
    schema = make_schema(
        columns=columns(f="float", b="bool?", t="time?", y="int"),
        missing=("", "-9", "0"),
        label=Label(column="b", classes=("false", "true")),
        filter="b IS NOT NULL",
    )
    content = (
        "f,b,t,y\n1, YES,2024-01-31,3\n2,F,1969-12-31 23:59:59.5,4\n4,t,-9,5\n5,0,,6\n6,no,1970-01-01T01:00+01:00,7\n"
    )
    examples = read_csv(tmp_path, content, schema)
    assert [(r["b"], r["t"], r["label"]) for r in rows(examples)] == [
        ("true", 1706659200, 1),
        ("false", -1, 0),
        ("true", None, 1),
        ("false", None, 0),
    ]
    assert examples.left_out == 1
    for row, message in (
        ("1,maybe,,1", "b: 'maybe' is no boolean, which is true t yes y 1 or false f no n 0"),
        ("-9.00,t,,1", "f: '-9.00' is a missing value, and the schema has no default for it"),
        ("1,t,2024-02-30,1", "t: '2024-02-30' is no date or time as in ISO 8601"),
        ("1,t,2024-01-01T24:00,1", "t: '2024-01-01T24:00' is no date"),
        ("1,t, 2024-02-03,1", "t: ' 2024-02-03' is no date"),
    ):
        with pytest.raises(UserError, match=f"line 3: {message}"):
            read_csv(tmp_path, f"f,b,t,y\n1,t,,1\n{row}\n", schema)


@pytest.mark.parametrize(
    ("label", "values", "message"),
    [
        (Label(regression={"l": "i * 2"}), [4.0, 6.0], ""),
        (Label(regression={"f": "f", "l": "i + f"}), [[1.0, 3.0], [1.0, 4.0]], ""),
        (Label(multi_label={"a": "i > 2", "y": "y"}), [[0, 0], [1, 1]], ""),
        (Label(condition="i > 2 AND s IS NULL", classes=("n", "y")), [0, 1], ""),
        (Label(column="s", classes=("x", "'z'")), None, r"line 3: s: is missing.*'filter: s IS NOT NULL'"),
        (Label(regression={"l": "f * 1e39"}), None, r"line 2: l: '1e\+39' is no finite 32-bit number"),
        (Label(multi_label={"a": "i > 2", "i": "i"}), None, "line 2: i: '2' is neither 0 nor 1"),
    ],
)
def test_labels_are_computed_or_refused(tmp_path, label, values, message):
    types = columns(f="float", i="int", s="string", y="int", w="int?")
    schema = make_schema(label, columns=types, deep=(Input(column="w", numeric="z_score"),))
    content = "f,i,s,y,w\n1,2,x,0,\n1,3,,1,\n"
    if message:
        with pytest.raises(UserError, match=message):
            read_csv(tmp_path, content, schema)
    else:
        columns_ = {**types, "s": columns(s="string?")["s"]}
        schema = make_schema(label, columns=columns_, deep=(Input(column="w", numeric="z_score"),))
        assert [row["label"] for row in rows(read_csv(tmp_path, content, schema))] == values


def test_vocabularies_are_of_training_rows(tmp_path):
    types = columns(s="string?", t="string?", n="int?", y="int")
    inputs = (Input(column="s", vocabulary=2), Input(column="t", words=2), Input(column="n", vocabulary=5))
    schema = make_schema(columns=types, deep=inputs)
    table = [[f"{'ab'[i % 2]}", f"One, {i}!", i % 3 - 1, i % 2] for i in range(2000)]
    path = write_csv(tmp_path / "t.csv", [["s", "t", "n", "y"], *table])
    examples = read(TextSource(name="csv", schema=schema), path, tmp_path, shards=4)
    assert examples.deep[0].vocabulary in {("a", "b"), ("b", "a")} and examples.deep[1].vocabulary[0] == "one"
    assert sorted(examples.deep[2].vocabulary) == [-1, 0, 1]
    assert len(examples.pieces) == 4 and examples.pieces[0].part == [0, 500]
    (block,) = examples.blocks(examples.pieces[1])
    assert len(block.columns["s"]) == 500 and examples.most["t"] == len("One, 1999!")


def test_column_of_zeros_takes_a_byte(tmp_path):
    examples = read_csv(tmp_path, b"f,i,s,y\n1,0,,0\n2,0,,1\n", make_schema(missing=()))
    assert (examples.most["i"], examples.most["s"]) == (0, 0)
    assert examples.layout().widths["i"] == 1


def test_indicator_says_what_is_missing(tmp_path):
    types = columns(f="float", i="int?", y="int")
    types["i"] = types["i"].model_copy(update={"indicator": True})
    schema = make_schema(columns=types, deep=(INPUT,), wide=(Input(column="i", buckets=(1.0,)),))
    examples = read_csv(tmp_path, b"f,i,y\n1,-7,0\n2,,1\n3,5,1\n", schema)
    (block,) = examples.blocks(examples.pieces[0])
    assert block.columns["i"].tolist() == [-7, -7, 5] and block.columns["i_missing"].tolist() == [0, 1, 0]
    assert [encoding.columns for encoding in examples.deep] == [("f",)]
    assert [(encoding.kind, encoding.columns) for encoding in examples.wide] == [
        ("buckets", ("i",)),
        ("numeric", ("i_missing",)),
    ]
    assert "i_missing" in {feature.name for feature in examples.features} and examples.most["i_missing"] == 1


@pytest.mark.parametrize("rule", [{"group": "s"}, {"time": "i", "test_from": 3, "validation_from": 2}])
def test_schema_decides_of_splits(tmp_path, rule):
    schema = make_schema(split=SplitRule(**rule))
    examples = read_csv(
        tmp_path, b"f,i,s,y\n" + b"".join(b"%d,%d,%d,1\n" % (i, i % 5, i % 3) for i in range(30)), schema
    )
    (block,) = examples.blocks(examples.pieces[0])
    if "group" in rule:
        assert (
            len(set(block.keys.tolist())) == 3
            and len(set(zip(block.keys.tolist(), block.columns["s"].tolist(), strict=True))) == 3
        )
    else:
        assert block.assigned["test"].tolist() == [i % 5 >= 3 for i in range(30)]
        assert block.assigned["validation"].tolist() == [i % 5 >= 2 for i in range(30)]


# Many columns.


def test_many_columns_one_query_of_linear_size(tmp_path, monkeypatch):
    """DuckDB's time for CASE WHEN is quadratic in how many there are, so that no column may have its own."""
    queries, connect = [], staging.connect

    class Recorded:
        def __init__(self, **settings):
            self.connection = connect(**settings)

        def __getattr__(self, name):
            return getattr(self.connection, name)

        def sql(self, query):
            queries.append(query)
            return self.connection.sql(query)

    monkeypatch.setattr(staging, "connect", Recorded)
    for count in (10, 20):
        names = [f"x{i}" for i in range(count)]
        schema = make_schema(columns=columns(**dict.fromkeys(["f", *names], "float"), y="int"))
        read_csv(tmp_path, f"f,{','.join(names)},y\n1{',2.5' * count},1\n", schema, name=f"{count}.csv")
    small, large = queries
    assert small.count("CASE") == large.count("CASE") > 0
    assert len(large) < 2 * len(small)


def test_thousands_of_columns(tmp_path):
    names = [f"x{i}" for i in range(3000)]
    schema = make_schema(columns=columns(**dict.fromkeys(["f", *names], "float"), y="int"))
    table = [["f", *names, "y"], *([1.5] * 3001 + [1] for _ in range(200))]
    path = write_csv(tmp_path / "t.csv", table)
    assert len(rows(read(TextSource(name="csv", schema=schema), path, tmp_path))) == 200
