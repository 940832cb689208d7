"""DuckDB computes what SQL says of a row, and nothing else is let through."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from components.convert.expressions import SQL_TYPES, columns_of, connection, quoted, references

TYPES = {"x": "float", "y": "float", "i": "int", "j": "int", "s": "string", "b": "bool", "when": "time"}
VALUES = {
    "x": st.one_of(st.none(), st.floats(-1e6, 1e6, width=32)),
    "i": st.one_of(st.none(), st.integers(-10_000, 10_000)),
    "s": st.one_of(st.none(), st.sampled_from(["", "a", "A", "Łódź", "it's", '"', "é"])),
    "b": st.one_of(st.none(), st.booleans()),
}
ROWS = st.fixed_dictionaries(
    {name: VALUES[{"float": "x", "int": "i", "time": "i", "string": "s", "bool": "b"}[t]] for name, t in TYPES.items()}
)


def strict(function):
    """Returns the function with SQL's rule for missing values: one makes the result missing."""
    return lambda *values: None if None in values else function(*values)


def both(a, b):
    return False if a is False or b is False else None if a is None or b is None else True


def either(a, b):
    return True if a is True or b is True else None if a is None or b is None else False


def column(kind: str):
    names = [name for name, type_ in TYPES.items() if SQL_TYPES[type_] in kind]
    return st.sampled_from(names).map(lambda name: (quoted(name), lambda row: row[name]))


def binary(symbol: str, function, left, right=None):
    def build(pair):
        (a, f), (b, g) = pair
        return f"({a} {symbol} {b})", lambda row: function(f(row), g(row))

    return st.tuples(left, left if right is None else right).map(build)


COMPARISONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq}
COMPARISONS["<>"] = operator.ne
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}
FLOATS = column("DOUBLE") | column("BIGINT").map(lambda e: (f"{e[0]}::DOUBLE", lambda row: strict(float)(e[1](row))))
FLOATS |= st.integers(-99, 99).map(lambda n: (f"({n / 4})::DOUBLE", lambda row: n / 4))
NUMBERS = st.recursive(
    FLOATS,
    lambda inner: st.one_of(*(binary(s, strict(f), inner) for s, f in ARITHMETIC.items())),
    max_leaves=4,
)
INTEGERS = st.recursive(
    column("BIGINT") | st.integers(-99, 99).map(lambda n: (f"({n})", lambda row: n)),
    lambda inner: st.one_of(*(binary(s, strict(f), inner) for s, f in ARITHMETIC.items())),
    max_leaves=3,
)
TEXTS = column("VARCHAR") | st.sampled_from(["a", "", "it's"]).map(
    lambda t: ("'{}'".format(t.replace("'", "''")), lambda row: t)
)
DIVISORS = st.integers(1, 99).map(lambda n: (str(n), lambda row: n))
NUMBERS |= binary("/", strict(operator.truediv), FLOATS | column("BIGINT"), DIVISORS)


def missing(of):
    return of.map(lambda e: (f"({e[0]} IS NULL)", lambda row: e[1](row) is None))


CONDITIONS = st.recursive(
    st.one_of(
        column("BOOLEAN"),
        missing(column("DOUBLE BIGINT VARCHAR BOOLEAN")),
        *(binary(s, strict(f), kind) for s, f in COMPARISONS.items() for kind in (INTEGERS, TEXTS)),
        *(binary(s, strict(f), FLOATS, NUMBERS) for s, f in COMPARISONS.items()),
    ),
    lambda inner: st.one_of(
        binary("AND", both, inner),
        binary("OR", either, inner),
        inner.map(lambda e: (f"(NOT {e[0]})", lambda row: strict(operator.not_)(e[1](row)))),
        missing(inner),
    ),
    max_leaves=5,
)


def compute(sql: str, rows: list[dict]) -> list:
    """Returns what DuckDB makes of the expression in each row."""
    values = ", ".join(f"({', '.join(f'?::{SQL_TYPES[type_]}' for type_ in TYPES.values())})" for _ in rows)
    names = ", ".join(map(quoted, TYPES))
    parameters = [row[name] for row in rows for name in TYPES]
    return [
        v for (v,) in connection().execute(f"SELECT ({sql}) FROM (VALUES {values}) t({names})", parameters).fetchall()
    ]


@given(expression=CONDITIONS, rows=st.lists(ROWS, min_size=1, max_size=5))
def test_conditions_by_three_valued_logic(expression, rows):
    """A condition is what an oracle in Python with SQL's rules for missing values says."""
    sql, oracle = expression
    if names := references(sql):
        assert columns_of(sql, TYPES, "filter") == names
    assert compute(sql, rows) == [oracle(row) for row in rows]


@given(expression=NUMBERS, rows=st.lists(ROWS, min_size=1, max_size=5))
def test_numbers_in_64_bits(expression, rows):
    """Arithmetic is that of IEEE 754 with 64 bits, as Python's."""
    sql, oracle = expression
    assert compute(sql, rows) == [oracle(row) for row in rows]


@pytest.mark.parametrize("tips", [2.45, 2.4500001, 2.4499999])
def test_decimal_literal_is_python_float(tips):
    rows = [dict.fromkeys(TYPES) | {"x": tips, "y": 12.25}]
    assert compute("x > 0.2 * y", rows) == [tips > 0.2 * 12.25]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("x > 1 -- a comment\nAND i < 2", {"x", "i"}),
        ('"when" BETWEEN 1 AND 2', {"when"}),
        ("s IN ('a', 'b;c', '--') OR s LIKE 'x%'", {"s"}),
        ("CASE WHEN b THEN x > 1 ELSE y IS NOT NULL END", {"b", "x", "y"}),
        ("coalesce(x, y) > 1 AND nullif(i, 0) < abs(j)", {"x", "y", "i", "j"}),
        ('year(make_timestamp("when" * 1000000)) = 2024', {"when"}),
        ("regexp_matches(s, 'a+') AND hash(s) % 10 < 3", {"s"}),
        ("b", {"b"}),
    ],
)
def test_condition_allowed(sql, names):
    assert columns_of(sql, TYPES, "filter") == names


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("xx > 1", "unknown column 'xx'; did you mean 'x'"),
        ("X > 1", "unknown column 'X'"),
        ("rows.x > 1", "unknown column 'rows.x'"),
        ("current_date > '2024-01-01'", "unknown column 'current_date'"),
        ("1 > 2", "says nothing of any column"),
        ("x >", "syntax error"),
        ("when > 1", "syntax error"),
        ("x > 1 -- a comment AND i < 2", "syntax error"),
        ("x > /* 1", "unterminated"),
        ("s > 1", "Cannot compare values of type VARCHAR"),
        ("abz(x) > 1", 'abz does not exist! Did you mean "abs"'),
        ("x + 1", "is a DOUBLE, where a condition is needed"),
        ("x, y", "where a condition is needed"),
        ("(SELECT x) > 1", "has a subquery"),
        ("x IN (SELECT 1)", "has a subquery"),
        ("x > (FROM '/etc/passwd')", "has a star"),
        ("row_number() OVER () > x", "has a window"),
        ("*", "has a star"),
        ("COLUMNS(*) > 1", "has a star"),
        ("x > ?", "has a parameter"),
        ("x > $1", "has a parameter"),
        ("list_contains(list_transform([x], a -> a + 1), 1)", "has a lambda"),
        ("sum(x) > 1", "sum does not follow from the values of one row"),
        ("x > random()", "random does not follow"),
        ("s > uuid()::VARCHAR", "uuid does not follow"),
        ("make_timestamp(i) < now()", "now does not follow"),
        ("age(make_timestamp(i)) > INTERVAL 1 DAY", "age does not follow"),
        ("geomean(x) > 1", "geomean does not follow"),
        ("read_text('/etc/passwd') = s", "table function"),
        ("x > 1) FROM 'a.csv' WHERE (i > 1", "syntax error"),
        ("x > 1) OR (i > 1", "syntax error"),
        ("x > 1 FROM 'a.csv'", "syntax error"),
        ("x > 1; SELECT y", "syntax error"),
        ("x > 1; DROP TABLE rows", "Only SELECT statements"),
        ("x > 1 UNION SELECT 1", "syntax error"),
    ],
)
def test_condition_refused(sql, message):
    with pytest.raises(UserError, match=rf"^filter: .*{message}") as error:
        columns_of(sql, TYPES, "filter")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("sql", ["2 * x", "i // 2", "0.5 * i", "ln(x)", "i", "CASE WHEN b THEN 1 END", "length(s)"])
def test_number_allowed(sql):
    assert columns_of(sql, TYPES, "label", "number")


@pytest.mark.parametrize("sql", ["b", "s", "x > 1", "[x]", "NULL::DATE = make_date(i, 1, 1)"])
def test_number_refused(sql):
    with pytest.raises(UserError, match="where a number is needed"):
        columns_of(sql, TYPES, "label", "number")
