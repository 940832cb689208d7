"""Columns of tables: their types, missing values, vocabularies and splits."""

import pytest
from staged import INPUT, columns, make_schema, read_csv, rows

from common.errors import UserError
from components.convert.schema import Input, Label, SplitRule

MARKED = make_schema(
    columns=columns(f="float", b="bool?", t="time?", y="int"),
    missing=("", "-9", "0"),
    label=Label(column="b", classes=("false", "true")),
    filter="b OR NOT b",
)


def test_booleans_times_marks(tmp_path):
    lines = [
        "f,b,t,y",
        "1, YES,2024-01-31,3",
        "2,F,1969-12-31 23:59:59.5,4",
        "4,t,-9,5",
        "5,0,,6",
        "6,no,1970-01-01T01:00+01:00,7",
    ]
    examples = read_csv(tmp_path, "\n".join(lines), MARKED)
    assert [(row["b"], row["t"], row["label"]) for row in rows(examples)] == [
        ("true", 1706659200, 1),
        ("false", -1, 0),
        ("true", None, 1),
        ("false", None, 0),
    ]
    assert examples.left_out == 1


@pytest.mark.parametrize(
    ("row", "message"),
    {
        "1,maybe,,1": "b: 'maybe' is no boolean",
        "-9.00,t,,1": "f: '-9.00' is a missing value",
        "1,t,2024-02-30,1": "t: '2024-02-30' is no date",
        "1,t,2024-01-01T24:00,1": "t: '2024-01-01T24:00' is",
        "1,t, 2024-02-03,1": "t: ' 2024-02-03' is no",
    }.items(),
)
def test_wrong_value_is_refused(tmp_path, row, message):
    with pytest.raises(UserError, match=f"line 3: {message}"):
        read_csv(tmp_path, f"f,b,t,y\n1,t,,1\n{row}\n", MARKED)


def test_vocabularies_are_of_training_rows(tmp_path):
    inputs = {"s": {"vocabulary": 9}, "t": {"words": 2}, "n": {"vocabulary": 2}}
    schema = make_schema(
        columns=columns(s="string?", t="string?", n="int?", y="int"),
        deep=tuple(Input(column=name, **encoding) for name, encoding in inputs.items()),
        split=SplitRule(time="n", test_from=3),
    )
    lines = [f'{"aabbc"[i % 5]},"One, {i}!",{i % 5},{i % 2}' for i in range(1000)]
    examples = read_csv(tmp_path, "\n".join(["s,t,n,y", *lines]), schema)
    letters, words, numbers = (encoding.vocabulary for encoding in examples.deep)
    assert (letters, words[0]) == (("a", "b"), "one")
    assert len(numbers) == 2 and {*numbers} < {0, 1, 2}


def test_indicator_of_missing_values(tmp_path):
    types = columns(f="float", i="int?", y="int")
    types["i"] = types["i"].model_copy(update={"indicator": True})
    schema = make_schema(columns=types, deep=(INPUT,), wide=(Input(column="i", buckets=(1.0,)),))
    examples = read_csv(tmp_path, "f,i,y\n1,-7,0\n2,,1\n3,5,1\n", schema)
    assert [row["i_missing"] for row in rows(examples)] == [0, 1, 0]
    (encoding,) = (each for each in examples.wide if each.columns == ("i_missing",))
    assert encoding.kind == "numeric"
    assert "i_missing" in {feature.name for feature in examples.features}


def test_rule_decides_splits(tmp_path):
    content = "f,i,s,y\n" + "".join(f"{i},{i},{i % 3},1\n" for i in range(30))
    for rule in (SplitRule(group="s"), SplitRule(time="i", test_from=20, validation_from=10)):
        examples = read_csv(tmp_path, content, make_schema(split=rule))
        (block,) = examples.blocks(examples.pieces[0])
        if rule.group:
            keys = block.keys.tolist()
            assert len({*keys}) == 3 and keys == keys[:3] * 10
    assert block.assigned["test"].tolist() == [i >= 20 for i in range(30)]
    assert block.assigned["validation"].tolist() == [i >= 10 for i in range(30)]
