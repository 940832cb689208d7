from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.tables.expressions import parse
from trainer.base.errors import UserError

TYPES = {"a": "float", "b": "int", "s": "string"}
COLUMNS = {
    "a": np.array([0.5, -2.0, 3.0, 0.0]),
    "b": np.array([1, 2**62, -3, 0]),
    "s": np.array(["x", "", "y", "x"], object),
}
MISSING = {"a": np.zeros(4, bool), "b": np.array([False, False, False, True])}

numbers = st.recursive(
    st.sampled_from(["a", "b"]) | st.integers(-9, 9) | st.floats(-9, 9),
    lambda node: st.builds(lambda op, x, y: {op: [x, y]}, st.sampled_from(["plus", "minus", "times"]), node, node),
    max_leaves=4,
)
comparisons = st.builds(
    lambda op, x, y: {op: [x, y]},
    st.sampled_from(["greater", "greater_equal", "less", "less_equal", "equal"]),
    numbers,
    numbers,
)
conditions = st.recursive(
    comparisons | st.just({"equal": ["s", {"text": "x"}]}) | st.just({"present": "b"}) | st.just({"present": "a"}),
    lambda node: (
        st.builds(lambda x: {"not": x}, node)
        | st.builds(lambda op, xs: {op: xs}, st.sampled_from(["all", "any"]), st.lists(node, min_size=1, max_size=3))
    ),
    max_leaves=5,
)


def by_hand(node, row: int):
    """The value of a node in one row, in plain Python."""
    if isinstance(node, str):
        return COLUMNS[node][row].item() if node != "s" else COLUMNS[node][row]
    if not isinstance(node, dict):
        return node
    ((name, operands),) = node.items()
    if name == "text":
        return operands
    if name == "present":
        return not MISSING[operands][row]
    if name == "not":
        return not by_hand(operands, row)
    values = [by_hand(operand, row) for operand in operands]
    if name in ("all", "any"):
        return {"all": all, "any": any}[name](values)
    if name in ("plus", "minus", "times"):
        x, y = map(float, values)
        return {"plus": x + y, "minus": x - y, "times": x * y}[name]
    names = {"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "equal": "eq"}
    return getattr(operator, names[name])(*values)


@given(node=conditions)
def test_every_condition_is_what_python_makes_of_it_row_by_row(node):
    try:
        condition = parse(node, TYPES, "label")
    except UserError as error:  # constants alone
        assert "says nothing of any column" in str(error)
        return
    values = condition.evaluate(COLUMNS, MISSING)
    assert values.dtype == bool or values.dtype == object
    assert np.broadcast_to(values, 4).tolist() == [by_hand(node, row) for row in range(4)]


def test_numbers_have_64_bits():
    fare, tips = np.array([12.25, 12.25]), np.array([2.45, 2.4500001])
    condition = parse({"greater": ["t", {"times": [0.2, "f"]}]}, {"t": "float", "f": "float"}, "label")
    assert condition.columns == {"t", "f"}
    expected = [float(t) > 0.2 * float(f) for t, f in zip(tips, fare, strict=True)]
    assert condition.evaluate({"t": tips, "f": fare}, {}).tolist() == expected == [False, True]
    large = np.array([2**62 + 1, 2**62])
    assert parse({"equal": ["i", 2**62]}, {"i": "int"}, "x").evaluate({"i": large}, {}).tolist() == [False, True]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("a", r"^label: a number, where a condition is needed"),
        ({"greater": ["a", "c"]}, r"^label\.greater\[1\]: unknown column 'c'.*a text is written \{text: c\}"),
        ({"greter": ["a", 1]}, r"^label\.greter: unknown operator 'greter'; did you mean 'greater'"),
        ({"greater": ["a"]}, r"^label\.greater: \['a'\] is not a list of two"),
        ({"all": {"present": "a"}}, r"^label\.all: .* is not a list of conditions"),
        ({"all": [{"present": "a"}, "b"]}, r"^label\.all\[1\]: a number, where a condition"),
        ({"greater": ["s", 1]}, r"^label\.greater\[0\]: a text, where a number"),
        ({"equal": ["s", "a"]}, r"^label\.equal\[1\]: a number, where a text"),
        ({"present": ["a"]}, r"^label\.present: unknown column"),
        ({"equal": ["s", {"text": 5}]}, r"^label\.equal\[1\]\.text: 5 is no text"),
        ({"greater": ["a", True]}, r"True is no column, number"),
        ({"greater": ["a", float("nan")]}, r"nan is no column, number"),
        ({"greater": ["a", 1], "less": ["a", 2]}, r"is no column, number or"),
        ({"greater": [2, 1]}, r"^label: says nothing of any column"),
    ],
)
def test_what_is_no_condition_is_told_with_its_place(node, message):
    with pytest.raises(UserError, match=message):
        parse(node, TYPES, "label")
