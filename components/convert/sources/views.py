"""Tables in files as a DuckDB view, with the files' own columns and types; no schema is needed.

    create_view(connection, "csv", files, folder)
    connection.sql("SELECT count(*) FROM source")

Files that are packed or in a bucket are copied to the folder first.
"""

import glob
import os
from collections.abc import Sequence

import duckdb

from common.errors import UserError, about
from common.storage.storage import File
from components.convert.sources.tables import delimiter_of
from components.convert.sources.text_rows import check_quotes, csv_relation, read_header
from components.convert.sources.unpacking import plain_path

# SQL of the table in files of each kind. That of CSV files depends on their headers.
TABLES = {
    "csv": None,
    # With these formats, dates that are not as in ISO 8601 stay texts.
    "jsonl": "read_json($paths, format='newline_delimited', sample_size=-1, union_by_name=true, "
    "dateformat='%Y-%m-%d', timestampformat='%Y-%m-%d %H:%M:%S')",
    "parquet": "read_parquet($paths, union_by_name=true, hive_partitioning=true, "
    "hive_types_autocast=false)",
}


def create_view(
    connection: duckdb.DuckDBPyConnection, dataset: str, files: Sequence[File], folder: str
) -> None:
    """Creates a view `source` of a table.

    Args:
      connection: Connection to DuckDB.
      dataset: Kind of the table, a key of `TABLES`.
      files: Files of the table. Those that are packed or in a bucket are copied.
      folder: Folder of this machine for the copies. They must stay as long as the view is used.

    Raises:
      UserError: If a file cannot be read, or is no CSV file with different names in its header.
      duckdb.Error: If a file is not of this kind.
    """
    paths = [plain_path(file, os.path.join(folder, str(i))) for i, file in enumerate(files)]
    if table := TABLES[dataset]:
        connection.sql(f"FROM {table}", params={"paths": [*map(glob.escape, paths)]}).create_view(
            "source"
        )
        return
    relations = []
    for file, path in zip(files, paths, strict=True):
        delimiter = delimiter_of(file.path)
        with about(file.path):
            header_end, header = read_header(path, delimiter)
            if len({*header}) < len(header):
                raise UserError("two columns have one name in the header")
            is_parallel = not check_quotes(path, delimiter)
        relations.append(
            f"FROM {csv_relation(path, header, header_end, delimiter, is_parallel=is_parallel)}"
        )
    connection.sql(" UNION ALL BY NAME ".join(relations)).create_view("source")
