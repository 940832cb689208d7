"""Where the text files of a table are, CSV or lines of JSON, and its schema. What reads them is imported when they are read."""

import dataclasses
import os
import pathlib
import re

from common.errors import UserError
from common.storage.files import list_folder
from common.storage.storage import File
from components.convert.pieces import Cut, Source
from components.convert.sources.base import Paths, Reader, print_left_out
from components.convert.tables.schema import Schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextReader(Reader):
    """Reads a table from CSV files, or from lines of JSON.

    Attributes:
      schema: Its schema, or the file of it; None if `--schema` gives it, which it takes then.
      json: Whether the files are lines of JSON.
      skip_bad: So many rows that are not what the schema says are left out.
    """

    name: str
    schema: str | pathlib.Path | Schema | None = None
    takes: frozenset[str] = frozenset({"skip_bad"})
    json: bool = False
    skip_bad: int | None = None

    def files(self, source: Paths) -> list[File]:
        """The files of the table; a directory stands for those in it, in the order of their names."""
        return self._files(source)

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Scans all files for the ends of records, which also finds damage that could hide one."""
        files = self._files(source, print_others=True)
        from components.convert.tables import text_files

        return text_files.cut(files, self._columns(), json=self.json, pieces=pieces, piece_bytes=piece_bytes)

    def open(self, cut: Cut) -> Source:
        """The table that was cut so."""
        from components.convert.tables import text_files

        return text_files.TextTable.of(self._columns(), cut=cut, json=self.json, skip_bad=self.skip_bad or 0)

    def _columns(self) -> Schema:
        from components.convert.tables import yaml_loader

        return yaml_loader.of_table(self.schema, self.name, delimited=not self.json)

    def _files(self, source: Paths, *, print_others: bool = False) -> list[File]:
        if self.schema is None:
            raise UserError(f"dataset {self.name!r} needs --schema FILE, which says what the columns are")
        kind = "files of JSON lines" if self.json else "CSV files"
        return self.found(source, f"FILE..., its {kind} or a directory of them", self._taken, print_others=print_others)

    def _taken(self, folder: str, print_others: bool) -> list[File]:
        """The files in a folder that have the names of tables."""
        endings = ("jsonl", "ndjson") if self.json else ("csv", "tsv")
        pattern = re.compile(rf".*\.({'|'.join(endings)})(\.gz|\.zst)?", re.IGNORECASE | re.DOTALL)
        folders, files = list_folder(folder)
        taken = [file for file in files if pattern.fullmatch(os.path.basename(file.path))]
        named = f"*.{' or *.'.join(endings)} files, or such with .gz or .zst behind"
        if not taken:
            raise UserError(f"{folder}: holds no {named}")
        if print_others:
            others = [f"{os.path.basename(inner)}/" for inner in folders]
            others += [os.path.basename(file.path) for file in files if file not in taken]
            visible = sorted(name for name in others if not name.startswith((".", "_")))
            print_left_out(folder, visible, f"only {named}, in the folder itself are read")
        paths = [file.path for file in taken]
        for path in paths:
            if (plain := re.sub(r"(?i)\.(gz|zst)$", "", path)) in paths and plain != path:
                raise UserError(
                    f"{path}: is packed, and {os.path.basename(plain)} beside it is not; delete one of them"
                )
        return taken
