"""Where the files of a table are, and its schema. What reads them is imported when they are read."""

from __future__ import annotations

import dataclasses
import pathlib
import re
from typing import TYPE_CHECKING

from components.convert.sources.base import Paths, Reader
from components.convert.tables.schema import Schema
from components.convert.writing.column_store import MEMORY, Store
from trainer.base.errors import UserError

if TYPE_CHECKING:
    from components.convert.tables.rows import TableSource

_NAME = re.compile(r".*\.[ct]sv(\.gz)?", re.IGNORECASE | re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsvReader(Reader):
    """Reads a table from CSV files.

    Attributes:
      name: As given with `--dataset`.
      schema: Its schema file; None if `--schema` gives it.
      takes: Whether that is so.
    """

    name: str
    schema: str | pathlib.Path | None = None
    takes: frozenset[str] = frozenset()

    def files(self, source: Paths) -> list[pathlib.Path]:
        """The schema and the files of the table; a directory stands for those in it, in the order of their names.

        Raises:
          UserError: If there are none.
        """
        if self.schema is None:
            raise UserError(f"dataset {self.name!r} needs --schema FILE, which says what the columns are")
        paths = []
        for path in self.paths(source, "FILE..., its CSV files or a directory of them"):
            paths += _inside(path) if path.is_dir() else [path]
        if absent := [path for path in paths if not path.is_file()]:
            raise UserError(f"{absent[0]}: no such file")
        return [pathlib.Path(self.schema), *paths]

    def read(self, source: Paths, store: Store = MEMORY) -> TableSource:
        """Reads the table.

        Raises:
          UserError: If the schema or a file is not what it should be.
        """
        schema, *paths = self.files(source)
        from components.convert.tables import csv_parser, rows, yaml_loader

        if not isinstance(columns := yaml_loader.load(schema), Schema):
            raise UserError(f"{schema}: is of images in TFRecord files; dataset {self.name!r} needs one with columns")
        return rows.read({"train": csv_parser.read(paths, columns)}, columns, store)


def _inside(directory: pathlib.Path) -> list[pathlib.Path]:
    found = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name) and not path.is_dir())
    if not found:
        raise UserError(f"{directory}: holds no *.csv or *.tsv files, or such with .gz behind")
    for path in found:
        if path.suffix.lower() == ".gz" and path.with_suffix("") in found:
            raise UserError(f"{path}: is packed, and {path.with_suffix('').name} beside it is not; delete one of them")
    return found
