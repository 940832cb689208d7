"""SQL expressions over the columns of a row, which DuckDB parses, checks and computes.

    types = {"tips": "float", "fare": "float"}
    columns_of("tips > 0.2 * fare", types, "label.condition")   # {"tips", "fare"}
    connection().sql("SELECT (tips > 0.2 * fare) FROM ...")

A missing value is NULL, and a `time` is in seconds since 1970. The value of an expression depends
on its row only.
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

# SQL types by the type that a schema gives a column.
SQL_TYPES = {
    "float": "DOUBLE",
    "int": "BIGINT",
    "string": "VARCHAR",
    "bool": "BOOLEAN",
    "time": "BIGINT",
}
# Patterns of SQL types: of whole and of all numbers, and of the values an expression may have.
INTEGERS = r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?"
NUMBERS = rf"{INTEGERS}|FLOAT|DOUBLE|DECIMAL\(.*\)"
_GIVES = {"condition": "BOOLEAN", "number": NUMBERS}
# Classes of nodes that the syntax tree of an expression may have.
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
# Query for those of some functions whose value does not depend on their arguments alone. If only
# some forms of a function depend on the time zone, the others are allowed, since no column has a
# zone. But `age` of one value depends on the clock.
_REFUSED = (
    "SELECT unnest(?) EXCEPT SELECT function_name FROM duckdb_functions() "
    "WHERE function_name IN ('if', 'nullif')\n"
    "    OR function_type = 'scalar' AND stability = 'CONSISTENT' AND function_name <> 'age'"
)


def connect(**settings: str) -> duckdb.DuckDBPyConnection:
    """Opens a DuckDB in memory, which neither loads nor looks for extensions that are not built in.

    Queries without joins, groups and sorting keep the order of rows.

    Args:
      **settings: Settings of DuckDB by name.
    """
    import duckdb  # The import takes a tenth of a second.

    import_arrow()
    switches = ("autoinstall_known_extensions", "autoload_known_extensions")
    # A list of values after IN would become a join, which does not keep the order of rows.
    optimizers = {"disabled_optimizers": "in_clause"}
    connection = duckdb.connect(
        config={**dict.fromkeys(switches, "false"), **optimizers, **settings}
    )
    # Without prefetching, a row group of a Parquet file is not in memory as a whole.
    return connection.execute("LOAD parquet; SET disable_parquet_prefetching = true")


@functools.cache
def connection() -> duckdb.DuckDBPyConnection:
    """Returns the one connection to DuckDB on which all expressions are checked.

    It reads no files, and uses one thread, since a forked process does not have the others.
    """
    return connect(enable_external_access="false", threads="1")


def quoted(name: str) -> str:
    """Returns a name as an SQL identifier in quotes."""
    return '"{}"'.format(name.replace('"', '""'))


def literal(text: str) -> str:
    """Returns a text as an SQL literal."""
    return "'{}'".format(text.replace("'", "''"))


@functools.lru_cache
def unquoted(name: str) -> str:
    """Returns a name as an SQL identifier, in quotes only if it needs them."""
    with contextlib.suppress(UserError):
        if references(name) == {name}:
            return name
    return quoted(name)


def references(sql: str) -> frozenset[str]:
    """Returns the names of the columns in an expression.

    Raises:
      UserError: If the expression has a wrong syntax, or something else than values, columns
        and functions.
    """
    return frozenset(
        ".".join(node["column_names"]) for node in _nodes(sql) if node["class"] == "COLUMN_REF"
    )


def columns_of(
    sql: str,
    types: Mapping[str, str],
    place: str,
    wanted: Literal["condition", "number"] = "condition",
) -> frozenset[str]:
    """Checks an expression, and returns the names of its columns.

    A query that uses the expression as a value has to put it in parentheses.

    Args:
      sql: The expression.
      types: Type of each column of the schema, by name.
      place: Place of the expression in the schema, for messages.
      wanted: Kind of value that the expression has to give.

    Raises:
      UserError: If DuckDB cannot compute the expression, it has an unknown column or none, its
        value depends on more than one row (or on the clock, for example), or it gives another kind
        of value.
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
        functions = {node["function_name"] for node in _nodes(sql) if "function_name" in node}
        for (name,) in connection().execute(_REFUSED, [sorted(functions)]).fetchall():
            raise UserError(f"{name} does not follow from the values of one row")
        if not re.fullmatch(_GIVES[wanted], kind):
            raise UserError(f"is a {kind}, where a {wanted} is needed")
        return frozenset(names)


def _nodes(sql: str) -> list[dict[str, Any]]:
    """Returns the nodes of an expression's syntax tree, as DuckDB's JSON has them.

    Raises:
      UserError: If the syntax is wrong, or a node is no value, column or function, but a query, a
        star or a parameter, for example.
    """
    ((text,),) = connection().execute("SELECT json_serialize_sql(?)", [f"SELECT {sql}"]).fetchall()
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
