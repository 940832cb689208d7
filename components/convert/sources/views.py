"""Tables in files as a DuckDB view, with the files' own columns and types; no schema is needed.

    create_view(connection, "csv", files, folder)
    connection.sql("SELECT count(*) FROM source")

Files that are packed or in a bucket are copied to the folder first.
"""

import contextlib
from collections.abc import Iterator, Sequence

import duckdb

from common.errors import UserError, about
from common.storage.storage import File
from components.convert.schema import DELIMITERS
from components.convert.sources.tables import delimiter_of
from components.convert.sources.text_rows import (
    check_quotes,
    csv_relation,
    parquet_relation,
    path_list,
    read_header,
)
from components.convert.sources.unpacking import plain_path


def create_view(
    connection: duckdb.DuckDBPyConnection, dataset: str, files: Sequence[File], folder: str
) -> str | None:
    """Creates a view `source` of a table.

    The delimiter of a CSV file is that of its name or, if its header has one column only then, the
    one with which it has most.

    Args:
      connection: Connection to DuckDB.
      dataset: Kind of the table, a key of `ENDINGS`.
      files: Files of the table. Those that are packed or in a bucket are copied.
      folder: Folder of this machine for the copies. They must stay as long as the view is used.

    Returns:
      The delimiter of the last CSV file, if it is not that of its name; else None.

    Raises:
      UserError: If a file cannot be read, or is no CSV file with different names in its header.
      duckdb.Error: If a file is not of this kind.
    """
    paths = [plain_path(file, folder) for file in files]
    if dataset != "csv":
        # With these formats, dates that are not as in ISO 8601 stay texts.
        table = (
            parquet_relation(paths)
            if dataset == "parquet"
            else f"read_json({path_list(paths)}, format='newline_delimited', sample_size=-1, "
            "union_by_name=true, dateformat='%Y-%m-%d', timestampformat='%Y-%m-%d %H:%M:%S')"
        )
        connection.sql(f"FROM {table}").create_view("source")
        return None
    relations = []
    for file, path in zip(files, paths, strict=True):
        usual = delimiter_of(file.path)
        with about(file.path):
            delimiter = usual
            if len(read_header(path, usual)[1]) == 1:
                delimiter = max(
                    (usual, *DELIMITERS), key=lambda each: len(read_header(path, each)[1])
                )
            header_end, header = read_header(path, delimiter)
            if len({*header}) < len(header):
                raise UserError("two columns have one name in the header")
            is_parallel = not check_quotes(path, delimiter)
        relations.append(
            f"FROM {csv_relation(path, header, header_end, delimiter, is_parallel=is_parallel)}"
        )
    connection.sql(" UNION ALL BY NAME ".join(relations)).create_view("source")
    return None if delimiter == usual else delimiter


@contextlib.contextmanager
def table_errors() -> Iterator[None]:
    """Context manager that turns DuckDB's errors into ones that say what is wrong, and where.

    Raises:
      UserError: In place of a `duckdb.Error` in the block, with its first lines as one.
    """
    try:
        yield
    except duckdb.Error as error:
        raise UserError(" ".join(" ".join(str(error).splitlines()[:3]).split())) from None
