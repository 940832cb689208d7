"""Where the files of a table are, and its schema. What reads them is imported when they are read."""

import dataclasses
import pathlib
import re

from components.convert.source import Source
from components.convert.sources.base import Paths, Reader
from components.convert.tables.schema import Schema
from components.convert.writing.column_store import MEMORY, Store
from trainer.base.errors import UserError

_NAME = re.compile(r".*\.[ct]sv(\.gz)?", re.IGNORECASE | re.DOTALL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CsvReader(Reader):
    """Reads a table from CSV files.

    Attributes:
      schema: Its schema file; None if `--schema` gives it, which it takes then.
    """

    name: str
    schema: str | pathlib.Path | None = None
    takes: frozenset[str] = frozenset()

    def files(self, source: Paths) -> list[pathlib.Path]:
        """The files of the table; a directory stands for those in it, in the order of their names."""
        if self.schema is None:
            raise UserError(f"dataset {self.name!r} needs --schema FILE, which says what the columns are")
        return self.inside(source, "FILE..., its CSV files or a directory of them", _inside)

    def read(self, source: Paths, store: Store = MEMORY) -> Source:
        """Reads the table."""
        paths = self.files(source)
        from components.convert.tables import csv_parser, rows, yaml_loader

        if not isinstance(columns := yaml_loader.load(pathlib.Path(self.schema)), Schema):
            raise UserError(
                f"{self.schema}: is of images in TFRecord files; dataset {self.name!r} needs one with columns"
            )
        return rows.read({"train": csv_parser.read(paths, columns)}, columns, store)


def _inside(directory: pathlib.Path) -> list[pathlib.Path]:
    found = sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name) and not path.is_dir())
    if not found:
        raise UserError(f"{directory}: holds no *.csv or *.tsv files, or such with .gz behind")
    for path in found:
        if path.suffix.lower() == ".gz" and path.with_suffix("") in found:
            raise UserError(f"{path}: is packed, and {path.with_suffix('').name} beside it is not; delete one of them")
    return found
