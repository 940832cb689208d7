"""Columns of tables: their types, missing values, vocabularies and splits."""

import pytest
from staged import INPUT, columns, make_schema, read, read_csv, rows, write_csv

from common.errors import UserError
from components.convert.schema import Input, Label, SplitRule
from components.convert.sources import staging
from components.convert.sources.tables import TextSource


def test_booleans_times_marks(tmp_path):
    schema = make_schema(
        columns=columns(f="float", b="bool?", t="time?", y="int"),
        missing=("", "-9", "0"),
        label=Label(column="b", classes=("false", "true")),
        filter="b OR NOT b",
    )
    content = (
        "f,b,t,y\n1, YES,2024-01-31,3\n2,F,1969-12-31 "
        "23:59:59.5,4\n4,t,-9,5\n5,0,,6\n6,no,1970-01-01T01:00+01:00,7\n"
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


def test_vocabularies_are_of_training_rows(tmp_path):
    inputs = (
        Input(column="s", vocabulary=2),
        Input(column="t", words=2),
        Input(column="n", vocabulary=5),
    )
    schema = make_schema(columns=columns(s="string?", t="string?", n="int?", y="int"), deep=inputs)
    table = [["ab"[i % 2], f"One, {i}!", i % 3 - 1, i % 2] for i in range(2000)]
    path = write_csv(tmp_path / "t.csv", [["s", "t", "n", "y"], *table])
    examples = read(TextSource(name="csv", schema=schema), path, tmp_path, shards=4)
    letters, words, numbers = (encoding.vocabulary for encoding in examples.deep)
    assert (sorted(letters), words[0], sorted(numbers)) == (["a", "b"], "one", [-1, 0, 1])
    assert [piece.part for piece in examples.pieces] == [
        [0, 500],
        [500, 1000],
        [1000, 1500],
        [1500, 2000],
    ]
    assert len(rows(examples)) == 2000 and examples.most["t"] == len("One, 1999!")


def test_column_of_zeros_takes_a_byte(tmp_path):
    examples = read_csv(tmp_path, b"f,i,s,y\n1,0,,0\n2,0,,1\n", make_schema(missing=()))
    assert (examples.most["i"], examples.most["s"]) == (0, 0)
    assert examples.layout().widths["i"] == 1


def test_indicator_of_missing_values(tmp_path):
    types = columns(f="float", i="int?", y="int")
    types["i"] = types["i"].model_copy(update={"indicator": True})
    schema = make_schema(columns=types, deep=(INPUT,), wide=(Input(column="i", buckets=(1.0,)),))
    examples = read_csv(tmp_path, b"f,i,y\n1,-7,0\n2,,1\n3,5,1\n", schema)
    (block,) = examples.blocks(examples.pieces[0])
    assert block.columns["i"].tolist() == [-7, -7, 5] and block.columns["i_missing"].tolist() == [
        0,
        1,
        0,
    ]
    encodings = [(encoding.kind, *encoding.columns) for encoding in examples.deep + examples.wide]
    assert encodings == [("numeric", "f"), ("buckets", "i"), ("numeric", "i_missing")]
    assert (
        "i_missing" in {feature.name for feature in examples.features}
        and examples.most["i_missing"] == 1
    )


def test_group_stays_together(tmp_path):
    content = "f,i,s,y\n" + "".join(f"{i},,{i % 3},1\n" for i in range(30))
    examples = read_csv(tmp_path, content, make_schema(split=SplitRule(group="s")))
    (block,) = examples.blocks(examples.pieces[0])
    keys = block.keys.tolist()
    assert len({*keys}) == 3 and keys == keys[:3] * 10


def test_time_decides_splits(tmp_path):
    content = "f,i,s,y\n" + "".join(f"1,{i},,1\n" for i in range(5))
    schema = make_schema(split=SplitRule(time="i", test_from=3, validation_from=2))
    examples = read_csv(tmp_path, content, schema)
    (block,) = examples.blocks(examples.pieces[0])
    assert block.assigned["test"].tolist() == [False, False, False, True, True]
    assert block.assigned["validation"].tolist() == [False, False, True, True, True]


def test_many_columns_take_linear_query(tmp_path, monkeypatch):
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
    for count in (1500, 3000):
        names = [f"x{i}" for i in range(count)]
        schema = make_schema(columns=columns(**dict.fromkeys(["f", *names], "float"), y="int"))
        read_csv(tmp_path, f"f,{','.join(names)},y\n1{',2.5' * count},1\n", schema)
    small, large = queries
    assert small.count("CASE") == large.count("CASE") > 0
    assert len(large) < 2.1 * len(small)  # Numbers of columns get longer too.
