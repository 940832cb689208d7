"""DuckDB computes what SQL says of a row, and any other expression is refused."""

import pytest

from components.convert.expressions import SQL_TYPES, columns_of, connection
from tests.errors import user_error

KINDS = "float float int int string bool time"
TYPES = dict(zip(["x", "y", "i", "j", "s", "b", "when"], KINDS.split(), strict=True))


@pytest.mark.parametrize("tips", [2.45, 2.4500001, 2.4499999])
def test_decimal_literal_is_float(tips):
    row = f"SELECT {tips}::{SQL_TYPES['float']} AS x, 12.25::{SQL_TYPES['float']} AS y"
    (is_more,) = connection().execute(f"SELECT x > 0.2 * y FROM ({row})").fetchone()
    assert is_more == (tips > 0.2 * 12.25)


@pytest.mark.parametrize(
    ("sql", "names"),
    {
        "x > 1 -- a comment\nAND i < 2": "x i",
        '"when" BETWEEN 1 AND 2': "when",
        "s IN ('a', 'b;c', '--') OR s LIKE 'x%'": "s",
        "CASE WHEN b THEN x > 1 ELSE y IS NOT NULL END": "b x y",
        'year(make_timestamp("when" * 1000000)) = 2024': "when",
        "regexp_matches(s, 'a+') AND hash(s) % 10 < 3": "s",
    }.items(),
)
def test_condition_is_allowed(sql, names):
    assert columns_of(sql, TYPES, "filter") == {*names.split()}


@pytest.mark.parametrize(
    ("sql", "message"),
    {
        "xx > 1": "unknown column 'xx'; did you mean 'x'",
        "X > 1": "unknown column 'X'",
        "1 > 2": "nothing of any column",
        "x >": "syntax error",
        "s > 1": "Cannot compare",
        "abz(x) > 1": 'did you mean "abs"',
        "x + 1": "is a DOUBLE, where",
        "x, y": "where a condition is",
        "(SELECT x) > 1": "has a subquery",
        "x > (FROM '/etc/passwd')": "has a star",
        "row_number() OVER () > x": "has a window",
        "x > ?": "has a parameter",
        "sum(x) > 1": "sum does not follow",
        "x > random()": "random does not",
        "make_timestamp(i) < now()": "now does not follow",
        "age(make_timestamp(i)) > INTERVAL 1 DAY": "age does not follow",
        "read_text('/etc/passwd') = s": "table function",
        "x > 1) FROM 'a.csv' WHERE (i > 1": "syntax error",
        "x > 1; SELECT y": "syntax error",
        "x > 1; DROP TABLE rows": "Only SELECT",
    }.items(),
)
def test_condition_is_refused(sql, message):
    with user_error(rf"(?i)^filter: [^\n]*{message}[^\n]*$"):
        columns_of(sql, TYPES, "filter")


def test_number_is_needed():
    for sql in ("i // 2", "0.5 * i", "length(s)"):
        assert columns_of(sql, TYPES, "label", "number")
    for sql in ("b", "s", "x > 1", "[x]"):
        with user_error("where a number is needed"):
            columns_of(sql, TYPES, "label", "number")
