"""Conditions over columns, written as data and never run as code.

    condition = parse({"greater": ["tips", {"times": [0.2, "fare"]}]}, {"tips": "float", "fare": "float"}, "label")
    condition.evaluate({"tips": tips, "fare": fare}, missing)     # bool [N]

A name stands for a column, a number for itself, `{text: Cash}` for a text; docs/DATASETS.md lists the operators.
Numbers are computed with 64 bits, as the source has them. Where a value is missing, the column's default is in its
place; `present` tells them apart.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from common.errors import UserError, unknown
from common.spellings import TRUE

Columns = Mapping[str, np.ndarray]


def _certain(compare: Callable[..., Any]) -> Callable[..., Any]:
    """The comparison, false where a value is masked."""
    return lambda *values: np.ma.filled(compare(*values), False)


_TYPES = {"float": "number", "int": "number", "string": "text", "bool": "condition", "time": "number"}
# What each takes, what it gives, and how. Arithmetic is in floats: 64-bit integers would wrap around without a word.
_OPERATORS: Mapping[str, tuple[str, str, Callable[..., Any]]] = {
    "plus": ("number", "number", functools.partial(np.add, dtype=np.float64)),
    "minus": ("number", "number", functools.partial(np.subtract, dtype=np.float64)),
    "times": ("number", "number", functools.partial(np.multiply, dtype=np.float64)),
    "greater": ("number", "condition", _certain(np.greater)),
    "greater_equal": ("number", "condition", _certain(np.greater_equal)),
    "less": ("number", "condition", _certain(np.less)),
    "less_equal": ("number", "condition", _certain(np.less_equal)),
    "equal": ("number", "condition", _certain(np.equal)),  # or of texts
    "all": ("condition", "condition", lambda *values: functools.reduce(np.logical_and, values)),
    "any": ("condition", "condition", lambda *values: functools.reduce(np.logical_or, values)),
    "not": ("condition", "condition", np.logical_not),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expression:
    """A condition, number or text: values [N] from columns [N], which are float64, int64 or objects.

    It is evaluated with those columns by name, masked where they have neither a value nor a default, and with where they
    have no value, bool [N].
    """

    type: str
    columns: frozenset[str]
    evaluate: Callable[[Columns, Columns], Any]
    # The columns that `present` asks about: the expression says itself what a missing value means.
    tested: frozenset[str] = frozenset()


def parse(node: Any, types: Mapping[str, str], place: str, wanted: str = "condition") -> Expression:
    """The condition or `number` over columns of those types that YAML writes down; a fault is told with its place."""
    expression = _expect(wanted, _parse(node, types, place), place)
    if not expression.columns:
        raise UserError(f"{place}: says nothing of any column")
    return expression


def _parse(node: Any, types: Mapping[str, str], place: str) -> Expression:
    if isinstance(node, str):
        if node not in types:
            raise UserError(f"{place}: {unknown('column', node, types)}; a text is written {{text: {node}}}")
        is_true = _certain(np.equal)
        given = (lambda v, _: is_true(v[node], TRUE[0])) if types[node] == "bool" else (lambda v, _: v[node])
        return Expression(type=_TYPES[types[node]], columns=frozenset({node}), evaluate=given)
    if isinstance(node, int | float) and not isinstance(node, bool) and math.isfinite(node):
        return Expression(type="number", columns=frozenset(), evaluate=lambda values, missing: node)
    if not isinstance(node, Mapping) or len(node) != 1:
        raise UserError(f"{place}: {node!r} is no column, number or {{operator: operands}}")
    ((operator, operands),) = node.items()
    place = f"{place}.{operator}"
    if operator == "text":
        if not isinstance(operands, str):
            raise UserError(f"{place}: {operands!r} is no text; write it in quotes")
        return Expression(type="text", columns=frozenset(), evaluate=lambda values, missing: operands)
    if operator == "present":
        if not isinstance(operands, str) or operands not in types:
            raise UserError(f"{place}: {unknown('column', str(operands), types)}")
        columns = frozenset({operands})
        return Expression(
            type="condition",
            columns=columns,
            evaluate=lambda _, missing: ~missing[operands],
            tested=columns,
        )
    if operator not in _OPERATORS:
        raise UserError(f"{place}: {unknown('operator', str(operator), (*_OPERATORS, 'present', 'text'))}")
    wanted, kind, function = _OPERATORS[operator]
    if operator == "not":
        parsed = [_expect(wanted, _parse(operands, types, place), place)]
    else:
        if not isinstance(operands, list) or not operands or (wanted == "number" and len(operands) != 2):
            raise UserError(f"{place}: {operands!r} is not a list of {'two' if wanted == 'number' else 'conditions'}")
        parsed = [_parse(operand, types, f"{place}[{i}]") for i, operand in enumerate(operands)]
        if operator == "equal" and parsed[0].type == "text":
            wanted = "text"
        for i, operand in enumerate(parsed):
            _expect(wanted, operand, f"{place}[{i}]")
    return Expression(
        type=kind,
        columns=frozenset().union(*(operand.columns for operand in parsed)),
        evaluate=lambda values, missing: function(*(operand.evaluate(values, missing) for operand in parsed)),
        tested=frozenset().union(*(operand.tested for operand in parsed)),
    )


def _expect(wanted: str, expression: Expression, place: str) -> Expression:
    if expression.type != wanted:
        raise UserError(f"{place}: a {expression.type}, where a {wanted} is needed")
    return expression
