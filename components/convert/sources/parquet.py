"""Tables in Parquet files: one, several, or a folder, whose own folders may be named `year=2024`."""

import dataclasses
import pathlib
import re
import urllib.parse

from common.errors import UserError
from common.storage.files import list_files
from common.storage.storage import File
from components.convert.pieces import Cut, Source
from components.convert.sources.base import Paths, Reader, once, print_left_out
from components.convert.tables.schema import Schema

_NAME = re.compile(r".*\.(parquet|parq|pq)", re.IGNORECASE | re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParquetReader(Reader):
    """Reads a table from Parquet files.

    Attributes:
      schema: Its schema, or the file of it.
    """

    name: str = "parquet"
    schema: str | pathlib.Path | Schema | None = None
    takes: frozenset[str] = frozenset({"schema"})

    def files(self, source: Paths) -> list[File]:
        """The files of the table, in order."""
        return [file for file, _ in self._found(source)]

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Reads the footers of all files, and compares them with the schema; a piece is some row groups of a file."""
        from components.convert.sources import parquet_table  # what it needs is slow to import

        return parquet_table.cut(
            self._found(source, print_others=True), self._columns(), pieces=pieces, piece_bytes=piece_bytes
        )

    def open(self, cut: Cut) -> Source:
        """The table that was cut so."""
        from components.convert.sources.parquet_table import ParquetTable

        return ParquetTable.of(self._columns(), cut=cut)

    def _columns(self) -> Schema:
        from components.convert.tables import yaml_loader

        return yaml_loader.of_table(self.schema, self.name, delimited=False)

    def _found(self, source: Paths, *, print_others: bool = False) -> list[tuple[File, dict[str, str]]]:
        """The files, each with what the names of its folders say: columns and their values, as texts."""
        found = []
        for place, given in self.places(source, "FILE..., its Parquet files or a directory of them"):
            if given:
                found.append((given, {}))
                continue
            inside = [(file, file.path.removeprefix(place).strip("/").split("/")) for file in list_files(place)]
            visible = [(f, parts) for f, parts in inside if not any(part.startswith((".", "_")) for part in parts)]
            taken = [(f, parts) for f, parts in visible if _NAME.fullmatch(parts[-1])]
            if not taken:
                raise UserError(f"{place}: holds no *.parquet files")
            if print_others:
                others = ["/".join(parts) for _, parts in visible if not _NAME.fullmatch(parts[-1])]
                print_left_out(place, others, "only *.parquet, *.parq and *.pq files are read")
            found += [(file, _texts(folders)) for file, (*folders, _) in taken]
        once([file for file, _ in found])
        return found


def _texts(folders: list[str]) -> dict[str, str]:
    """What folders such as `year=2024` say."""
    pairs = (folder.split("=", 1) for folder in folders if "=" in folder)
    return {urllib.parse.unquote(name): urllib.parse.unquote(value) for name, value in pairs}
