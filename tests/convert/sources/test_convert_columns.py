"""Columns of tables: their types, missing values, vocabularies and splits."""

from staged import INPUT, columns, make_schema, read_csv, rows

from components.convert.schema import Input, SplitRule


def test_vocabularies_are_of_training_rows(tmp_path):
    inputs = {"s": {"vocabulary": 9}, "t": {"words": 2}}
    schema = make_schema(
        columns=columns(s="string?", t="string?", n="int?", y="int"),
        deep=tuple(Input(column=name, **encoding) for name, encoding in inputs.items()),
        split=SplitRule(time="n", test_from=3),
    )
    lines = [f'{"aabbc"[i % 5]},"One, {i}!",{i % 5},{i % 2}' for i in range(1000)]
    examples = read_csv(tmp_path, "\n".join(["s,t,n,y", *lines]), schema)
    letters, words = (encoding.vocabulary for encoding in examples.deep)
    assert (letters, words[0]) == (("a", "b"), "one")


def test_indicator_of_missing_values(tmp_path):
    types = columns(f="float", i="int?", y="int")
    types["i"] = types["i"].model_copy(update={"indicator": True})
    schema = make_schema(columns=types, deep=(INPUT,), wide=(Input(column="i", buckets=(1.0,)),))
    examples = read_csv(tmp_path, "f,i,y\n1,-7,0\n2,,1\n3,5,1\n", schema)
    assert [row["i_missing"] for row in rows(examples)] == [0, 1, 0]
    assert {("i_missing",), ("i",)} == {encoding.columns for encoding in examples.wide}
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
