"""TFRecord files that other programs wrote: where they are, and by their names which split they belong to.

reader = TfrecordReader(schema=pathlib.Path("flowers.yaml"))
cut = reader.cut("downloads/flowers", pieces=8, piece_bytes=1 << 26)
source = reader.open(cut)
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping

from common.errors import UserError
from common.storage.files import list_files
from common.storage.storage import File
from components.convert.pieces import Cut, Source
from components.convert.sources.base import Paths, Reader, print_left_out
from components.convert.tables.schema import ImageSchema, Schema
from components.convert.writing.splits import NAMES

_SPLITS = {**NAMES, "eval": "test", "evaluation": "test"}
_MARK = ".tfrec"  # in the names of most such files, whatever follows


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfrecordReader(Reader):
    """Reads TFRecord files of `tf.train.Example` records; the schema is of a table or of images."""

    name: str = "tfrecord"
    takes = frozenset({"schema", "image_size", "encoding"})
    schema: str | pathlib.Path | None = None
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def files(self, source: Paths) -> list[File]:
        """The files; without a schema, an error says what the first record holds."""
        return list(self._find(source).values())

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Each file is a piece."""
        from components.convert.sources.examples import contents

        files, splits = self._find(source, print_others=True), {}
        for name, split in _split(files).items():
            splits.setdefault(split, []).append(files[name])
        return contents.cut(self._schema, splits)

    def open(self, cut: Cut) -> Source:
        """What the records hold."""
        from components.convert.sources.examples import contents

        return contents.source(self._schema, cut, size=self.image_size, encoding=self.encoding)

    @property
    def _schema(self) -> Schema | ImageSchema:
        from components.convert.tables import yaml_loader

        return yaml_loader.load(pathlib.Path(self.schema))

    def _find(self, source: Paths, *, print_others: bool = False) -> dict[str, File]:
        """The files, in order, by their paths from the folder that they all are in."""
        wanted = "FILE..., its TFRecord files or a directory of them"
        files = self.found(source, wanted, _inside, print_others=print_others)
        if self.schema is None:
            from components.convert.sources.examples import contents

            raise UserError(
                f"dataset {self.name!r} needs --schema FILE, which says what the features are; the first record of "
                f"{files[0].path} has {contents.describe(files[0])}"
            )
        root = os.path.commonpath([os.path.dirname(os.path.abspath(file.path)) for file in files])
        return {os.path.relpath(file.path, root): file for file in files}


def _inside(folder: str, print_others: bool) -> list[File]:
    """Files in a folder and its folders; hidden ones and those that only mark success are passed over."""
    below = ((file.path[len(folder) :].strip("/").split("/"), file) for file in list_files(folder))
    found = [(names, file) for names, file in below if not any(name.startswith((".", "_")) for name in names)]
    if not found:
        raise UserError(f"{folder}: holds no files")
    found.sort(key=lambda named: named[0])
    marked = [(names, file) for names, file in found if _MARK in names[-1]]
    if marked and print_others:
        others = ["/".join(names) for names, _ in found if _MARK not in names[-1]]
        print_left_out(folder, others, f"other names have {_MARK}")
    return [file for _, file in marked or found]


def _split(files: Mapping[str, File]) -> dict[str, str]:
    """By name, the split: what the file's name says, else what its folders' do, or `train` if nobody's does."""
    said = {}
    for name in files:
        if split := next(filter(None, map(_says, reversed(pathlib.Path(name).parts))), None):
            said[name] = split
    if not said:
        return dict.fromkeys(files, "train")
    one, split = next(iter(said.items()))
    if silent := [name for name in files if name not in said]:
        raise UserError(
            f"{files[silent[0]].path}: its name says no split, and that of {one} does ({split}); rename it, or give --source "
            "the files to take"
        )
    if "train" not in said.values():
        raise UserError(
            f"{files[one].path}: is for {split} by its name, and no file is for train; rename it, or add others"
        )
    return said


def _says(name: str) -> str | None:
    found = {_SPLITS[word] for word in re.findall("[a-z]+", name.lower()) if word in _SPLITS}
    if len(found) > 1:
        raise UserError(f"{name}: its name says {' and '.join(sorted(found))}; rename it")
    return next(iter(found), None)
