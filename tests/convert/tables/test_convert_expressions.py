import numpy as np
import pytest

from common.errors import UserError
from components.convert.tables.expressions import parse

TYPES = {"a": "float", "b": "int", "s": "string"}
COLUMNS = {"a": np.array([0.5, -2, 3, 0]), "b": np.array([1, 2**62, -3, 0]), "s": np.array(["x", "", "y", "x"], object)}
MISSING = {"a": np.zeros(4, bool), "b": np.array([False, False, False, True])}

A, B = {"greater": ["a", 0]}, {"less": ["b", 1]}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"greater": ["a", 0.5]}, [False, False, True, False]),
        ({"greater_equal": ["a", 0.5]}, [True, False, True, False]),
        ({"less": ["a", 0]}, [False, True, False, False]),
        ({"less_equal": ["a", "b"]}, [True, True, False, True]),
        ({"equal": ["b", 2**62]}, [False, True, False, False]),
        ({"equal": ["s", {"text": "x"}]}, [True, False, False, True]),
        ({"greater": [{"plus": ["a", 1]}, {"minus": [2, "a"]}]}, [False, False, True, False]),
        ({"equal": [{"times": ["a", {"times": ["b", 2]}]}, 1]}, [True, False, False, False]),
        ({"present": "b"}, [True, True, True, False]),
        ({"present": "a"}, [True, True, True, True]),
        ({"not": {"present": "b"}}, [False, False, False, True]),
        ({"all": [A, B, {"present": "a"}]}, [False, False, True, False]),
        ({"any": [A, B]}, [True, False, True, True]),
        ({"not": {"any": [{"all": [A]}, {"not": B}]}}, [False, False, False, True]),
    ],
)
def test_a_condition_is_what_it_says_row_by_row(node, expected):
    values = parse(node, TYPES, "label").evaluate(COLUMNS, MISSING)
    assert np.broadcast_to(values, 4).tolist() == expected


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
        ({"all": [{"present": "a"}, "b"]}, r"^label\.all\[1\]: a number, where a condition"),
        ({"greater": ["s", 1]}, r"^label\.greater\[0\]: a text, where a number"),
        ({"equal": ["s", {"text": 5}]}, r"^label\.equal\[1\]\.text: 5 is no text"),
        ({"greater": ["a", float("nan")]}, r"nan is no column, number"),
        ({"greater": ["a", 1], "less": ["a", 2]}, r"is no column, number or"),
        ({"greater": [2, 1]}, r"^label: says nothing of any column"),
    ],
)
def test_what_is_no_condition_is_told_with_its_place(node, message):
    with pytest.raises(UserError, match=message):
        parse(node, TYPES, "label")
