"""Columns of tables: types, missing values, vocabularies, splits, and what is predicted."""

import numpy as np
import pytest
from staged import INPUT, columns, make_schema, read_csv, rows

from components.convert.schema import Input, Label, SplitRule
from tests.errors import user_error


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


@pytest.fixture
def weather(tmp_path):
    """Reads 90 days with a label, of which day 40 has other texts in some columns."""

    def run(label, other=None, **changes):
        table = ["day,rain,wind,wet,flood"]
        for i in range(90):
            day = {"day": i, "rain": i / 10, "wind": i % 7, "wet": ("F", " true")[i % 2]}
            day |= {"flood": int(i % 5 == 0)} | (other if other and i == 40 else {})
            table.append(",".join(map(str, day.values())))
        types = columns(day="int", rain="float", wind="float?", wet="bool", flood="int")
        schema = make_schema(
            columns=types,
            label=Label(**label),
            deep=(Input(column="day", numeric="z_score"),),
            **changes,
        )
        return read_csv(tmp_path, "\n".join(table), schema)

    return run


@pytest.mark.parametrize(
    ("label", "num_bytes", "expected"),
    [
        ({"regression": "rain"}, 4, lambda i: i / 10),
        (
            {"regression": {"rain": "rain", "worst": "rain + 2 * wind"}},
            8,
            lambda i: [i / 10, i / 10 + 2 * (i % 7)],
        ),
        (
            {"multi_label": {"wet": "wet", "windy": "wind > 4", "flooded": "flood"}},
            3,
            lambda i: [i % 2, i % 7 > 4, i % 5 == 0],
        ),
    ],
)
def test_targets_of_columns_and_expressions(weather, label, num_bytes, expected):
    examples, [(task, targets)] = weather(label), label.items()
    assert (examples.task, examples.class_names) == (task, ())
    assert examples.targets == (tuple(targets) if isinstance(targets, dict) else (targets,))
    assert examples.layout().widths["label"] == num_bytes
    labels = [row["label"] for row in rows(examples)]
    np.testing.assert_allclose(labels, [*map(expected, range(90))], 1e-6)


@pytest.mark.parametrize(
    ("label", "missing", "kept"),
    [
        ({"regression": "rain"}, "rain", "rain IS NOT NULL"),
        (
            {"multi_label": {"wet": "wind < 3", "flood": "flood"}},
            "flood",
            "flood IS NOT NULL AND wind IS NOT NULL",
        ),
    ],
)
def test_missing_target_names_filter(weather, label, missing, kept):
    message = rf"t\.csv: line 42: {missing}:? is missing.*'filter: {kept}'"
    with user_error(message):
        weather(label, {missing: ""})
    days = [row["day"] for row in rows(weather(label, {missing: ""}, filter=kept))]
    assert days == [*range(40), *range(41, 90)]


def test_condition_on_missing_value(weather):
    label = {"condition": "wind IS NULL", "classes": ["known", "unknown"]}
    table = rows(weather(label, {"wind": ""}))
    assert [row["day"] for row in table if row["label"]] == [40]


@pytest.mark.parametrize(
    ("label", "other", "message"),
    [
        ({"regression": "rain"}, {"rain": "nan"}, "rain: 'nan' is no"),
        ({"regression": {"x": "rain * rain"}}, {"rain": "3e20"}, r"x: '9e\+40' is no"),
        ({"multi_label": ["wet", "flood"]}, {"flood": 2}, "flood: '2' is"),
    ],
)
def test_label_out_of_range_is_refused(weather, label, other, message):
    with user_error(rf"t\.csv: line 42: {message}"):
        weather(label, other)
