"""Conditions over columns, written as data and never run as code.

    condition = parse({"greater": ["tips", {"times": [0.2, "fare"]}]}, {"tips": "float", "fare": "float"}, "label")
    condition.evaluate({"tips": tips, "fare": fare}, missing)     # bool [N]

A name stands for a column, a number for itself, `{text: Cash}` for a text; docs/DATASETS.md lists the operators. Numbers are computed with 64 bits, as the source has them. Where a value is missing, the column's default is in its
place; `present` tells them apart.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trainer.base.errors import UserError, unknown

Columns = Mapping[str, np.ndarray]

_TYPES = {"float": "number", "int": "number", "string": "text"}
_ARITHMETIC = {"plus": np.add, "minus": np.subtract, "times": np.multiply}
_COMPARISONS = {
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
}
_LOGIC = {"all": np.logical_and, "any": np.logical_or}
_OPERATORS = (*_ARITHMETIC, *_COMPARISONS, *_LOGIC, "not", "present")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expression:
    """A parsed expression.

    Attributes:
      type: `condition`, `number` or `text`.
      columns: Names of the columns in it.
      evaluate: From these columns [N] (float64, int64 or objects) and, by name, where a value is missing (bool [N]) to
        values [N].
    """

    type: str
    columns: frozenset[str]
    evaluate: Callable[[Columns, Columns], Any]


def parse(node: Any, types: Mapping[str, str], place: str) -> Expression:
    """The condition that a node of YAML or JSON, at that place, writes down over columns of those types.

    Raises:
      UserError: If it is no condition, or not about a column; it names the place.
    """
    expression = _expect("condition", _parse(node, types, place), place)
    if not expression.columns:
        raise UserError(f"{place}: says nothing of any column")
    return expression


def _parse(node: Any, types: Mapping[str, str], place: str) -> Expression:
    if isinstance(node, str):
        if node not in types:
            raise UserError(f"{place}: {unknown('column', node, types)}; a text is written {{text: {node}}}")
        return Expression(type=_TYPES[types[node]], columns=frozenset({node}), evaluate=lambda values, _: values[node])
    if isinstance(node, int | float) and not isinstance(node, bool) and math.isfinite(node):
        return _constant("number", node)
    if not isinstance(node, Mapping) or len(node) != 1:
        raise UserError(f"{place}: {node!r} is no column, number or {{operator: operands}}")
    ((operator, operands),) = node.items()
    place = f"{place}.{operator}"
    if operator == "text":
        if not isinstance(operands, str):
            raise UserError(f"{place}: {operands!r} is no text; write it in quotes")
        return _constant("text", operands)
    if operator not in _OPERATORS:
        raise UserError(f"{place}: {unknown('operator', str(operator), (*_OPERATORS, 'text'))}")
    if operator == "present":
        if not isinstance(operands, str) or operands not in types:
            raise UserError(f"{place}: {unknown('column', str(operands), types)}")
        columns = frozenset({operands})
        return Expression(type="condition", columns=columns, evaluate=lambda _, missing: ~missing[operands])
    if operator == "not":
        return _apply("condition", np.logical_not, [_expect("condition", _parse(operands, types, place), place)])
    if not isinstance(operands, list) or not operands or (operator not in _LOGIC and len(operands) != 2):
        needed = "a list of conditions" if operator in _LOGIC else "a list of two"
        raise UserError(f"{place}: {operands!r} is not {needed}")
    places = [f"{place}[{i}]" for i in range(len(operands))]
    parsed = [_parse(operand, types, place) for operand, place in zip(operands, places, strict=True)]
    if operator in _LOGIC:
        wanted = "condition"
    else:
        wanted = "text" if operator == "equal" and parsed[0].type == "text" else "number"
    for operand, at in zip(parsed, places, strict=True):
        _expect(wanted, operand, at)
    if operator in _LOGIC:
        return _apply("condition", lambda *values: functools.reduce(_LOGIC[operator], values), parsed)
    if operator in _COMPARISONS:
        return _apply("condition", _COMPARISONS[operator], parsed)
    # As floats: 64-bit integers would wrap around without a word.
    return _apply("number", functools.partial(_ARITHMETIC[operator], dtype=np.float64), parsed)


def _expect(wanted: str, expression: Expression, place: str) -> Expression:
    if expression.type != wanted:
        raise UserError(f"{place}: a {expression.type}, where a {wanted} is needed")
    return expression


def _constant(kind: str, value: Any) -> Expression:
    return Expression(type=kind, columns=frozenset(), evaluate=lambda values, missing: value)


def _apply(kind: str, function: Callable[..., Any], operands: list[Expression]) -> Expression:
    return Expression(
        type=kind,
        columns=frozenset().union(*(operand.columns for operand in operands)),
        evaluate=lambda values, missing: function(*(operand.evaluate(values, missing) for operand in operands)),
    )
