"""SQL expressions over the columns of a row, which DuckDB parses, checks and computes.

    columns_of("tips > 0.2 * fare", {"tips": "float", "fare": "float"}, "label.condition")       # {"tips", "fare"}
    connection().sql("SELECT (tips > 0.2 * fare) FROM ...")

A missing value is NULL, and a `time` is in seconds since 1970. What an expression gives depends on its row alone.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from common.errors import UserError, about, unknown
from common.quiet import import_arrow

if TYPE_CHECKING:
    import duckdb

# In SQL, by the type that a schema gives a column.
SQL_TYPES = {
    "float": "DOUBLE",
    "int": "BIGINT",
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "time": "BIGINT",
}
_GIVES = {
    "condition": "BOOLEAN",
    "number": r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL\(.*\)",
}
_NODES = {
    "BETWEEN",
    "CASE",
    "CAST",
    "COLUMN_REF",
    "COMPARISON",
    "CONJUNCTION",
    "CONSTANT",
    "FUNCTION",
    "OPERATOR",
    "TYPE",
}
# A function of which one form only depends on the clock or the zone is allowed: no column has a
# zone. But `age` has both.
_REFUSED = """SELECT unnest(?) EXCEPT SELECT function_name FROM duckdb_functions() WHERE function_name IN ('if', 'nullif')
    OR function_type = 'scalar' AND stability = 'CONSISTENT' AND function_name <> 'age'"""


def connect(**settings: str) -> duckdb.DuckDBPyConnection:
    """Opens DuckDB in memory with these settings; it neither loads an extension nor takes the time to look for one."""
    import duckdb  # Takes a tenth of a second.

    import_arrow()
    switches = ("autoinstall_known_extensions", "autoload_known_extensions")
    return duckdb.connect(config={**dict.fromkeys(switches, "false"), **settings})


@functools.cache
def connection() -> duckdb.DuckDBPyConnection:
    """Returns the DuckDB of all expressions, which reads no file, and has no threads that a fork would lose."""
    return connect(enable_external_access="false", threads="1")


def quoted(name: str) -> str:
    """Returns any name as an identifier of SQL, in quotes."""
    return '"{}"'.format(name.replace('"', '""'))


def literal(text: str) -> str:
    """Returns a text as SQL has it."""
    return "'{}'".format(text.replace("'", "''"))


@functools.lru_cache
def unquoted(name: str) -> str:
    """Returns a name as people write it in SQL: in quotes only if it is a word of SQL."""
    with contextlib.suppress(UserError):
        if references(name) == {name}:
            return name
    return quoted(name)


def references(sql: str) -> frozenset[str]:
    """Returns the names of the columns in an expression."""
    return frozenset(
        ".".join(node["column_names"]) for node in _nodes(sql) if node["class"] == "COLUMN_REF"
    )


def columns_of(
    sql: str,
    types: Mapping[str, str],
    place: str,
    wanted: Literal["condition", "number"] = "condition",
) -> frozenset[str]:
    """Returns the columns that an expression is computed from. Where it stands for a value, it has to be in parentheses.

    Args:
      sql: The expression.
      types: The schema's type of each column that there is.
      place: Where it stands, for errors.
      wanted: What it has to give.

    Raises:
      UserError: If it is none that DuckDB can compute from one row, or gives something else.
    """
    import duckdb

    with about(f"{place}: {' '.join(sql.split())}"):
        names = sorted(references(sql))
        for name in names:
            if name not in types:
                raise unknown("column", name, types)
        if not names:
            raise UserError("says nothing of any column")
        row = ", ".join(f"NULL::{SQL_TYPES[types[name]]} AS {quoted(name)}" for name in names)
        try:
            kind = str(connection().sql(f"SELECT ({sql}) FROM (SELECT {row})").types[0])
        except duckdb.Error as error:
            raise UserError(
                " ".join(re.split(r"\s+(?:LINE|Candidate)", str(error))[0].split())
            ) from None
        functions = {node.get("function_name") for node in _nodes(sql)} - {None}
        for (name,) in connection().execute(_REFUSED, [sorted(functions)]).fetchall():
            raise UserError(f"{name} does not follow from the values of one row")
        if not re.fullmatch(_GIVES[wanted], kind):
            raise UserError(f"is a {kind}, where a {wanted} is needed")
        return frozenset(names)


def _nodes(sql: str) -> list[dict[str, Any]]:
    """Returns the nodes of an expression's tree.

    Raises:
      UserError: If it has something else than values, columns and functions, such as a query, a
        star or a parameter.
    """
    (text,) = connection().execute("SELECT json_serialize_sql(?)", [f"SELECT {sql}"]).fetchone()
    nodes = []

    def collect(value: dict[str, Any]) -> dict[str, Any]:
        if value.get("class", "TYPE") not in _NODES:
            raise UserError(
                f"has a {value['class'].lower()}; values, columns and functions are allowed"
            )
        if "class" in value:
            nodes.append(value)
        return value

    tree = json.loads(text, object_hook=collect)
    if tree["error"]:
        raise UserError(" ".join(tree["error_message"].split()))
    return nodes
