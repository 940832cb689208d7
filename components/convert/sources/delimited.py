"""Where the text files of a table are, CSV or lines of JSON, and its schema. What reads them is imported when they are read."""

import dataclasses
import pathlib
import re
from collections.abc import Sequence

from components.convert.pieces import Cut, Source
from components.convert.sources.base import Paths, Reader
from components.convert.tables.schema import Schema
from components.files.listing import File, listed, of_path
from trainer.base.errors import UserError
from trainer.base.files import is_remote


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

    def files(self, source: Paths) -> list[pathlib.Path]:
        """The files of the table; a directory stands for those in it, in the order of their names."""
        return [pathlib.Path(file.path) for file in self.listed(source)]

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Scans all files for the ends of records, which also finds damage that could hide one."""
        files = self.listed(source)
        from components.convert.tables import text_files

        return text_files.cut(files, self._columns(), json=self.json, pieces=pieces, piece_bytes=piece_bytes)

    def open(self, source: Paths, cut: Cut) -> Source:
        """The table that was cut so."""
        from components.convert.tables import text_files

        return text_files.TextTable.of(self._columns(), cut=cut, json=self.json, skip_bad=self.skip_bad or 0)

    def _columns(self) -> Schema:
        from components.convert.tables import yaml_loader

        schema = self.schema if isinstance(self.schema, Schema) else yaml_loader.load(pathlib.Path(self.schema))
        if not isinstance(schema, Schema):
            raise UserError(
                f"{self.schema}: is of images in TFRecord files; dataset {self.name!r} needs one with columns"
            )
        if self.json and schema.delimiter:
            raise UserError(f"{self.schema}: has a delimiter, and JSON has none; leave it out")
        return schema

    def listed(self, source: Paths) -> list[File]:
        """The same with what tells whether they change."""
        if self.schema is None:
            raise UserError(f"dataset {self.name!r} needs --schema FILE, which says what the columns are")
        places = [source] if isinstance(source, str) else source or []
        if any(map(is_remote, places)):
            return [file for place in places for file in self._remote(place)]
        kind = "files of JSON lines" if self.json else "CSV files"
        return [
            of_path(str(p)) for p in self.inside(source, f"FILE..., its {kind} or a directory of them", self._local)
        ]

    def _remote(self, place: str) -> list[File]:
        """The file of this address, or those right in this folder."""
        there = {file.path: file for file in listed(place)}
        folder = f"{place.rstrip('/')}/"
        names = [path.removeprefix(folder) for path in there if path.startswith(folder)]
        return (
            list(there.values()) if place in there else [there[f"{folder}{name}"] for name in self._taken(place, names)]
        )

    def _local(self, directory: pathlib.Path) -> list[pathlib.Path]:
        names = sorted(path.name for path in directory.iterdir() if not path.is_dir())
        return [directory / name for name in self._taken(directory, names)]

    def _taken(self, place: object, names: Sequence[str]) -> list[str]:
        """The names that files of the table may have."""
        endings = ("jsonl", "ndjson") if self.json else ("csv", "tsv")
        pattern = re.compile(rf"[^/]*\.({'|'.join(endings)})(\.gz|\.zst)?", re.IGNORECASE)
        taken = [name for name in names if pattern.fullmatch(name)]
        if not taken:
            raise UserError(f"{place}: holds no *.{' or *.'.join(endings)} files, or such with .gz or .zst behind")
        for name in taken:
            if (plain := re.sub(r"(?i)\.(gz|zst)$", "", name)) != name and plain in taken:
                raise UserError(f"{place}/{name}: is packed, and {plain} beside it is not; delete one of them")
        return taken
