"""Interface `Source` of what a dataset is made from; each kind is a file in `sources/`.

    source = find_source("mnist", path)                 # In components.convert.sources.registry.
    examples = source.open(path, opening)               # Once.
    for block in examples.blocks(examples.pieces[0]):   # In any process, any number of times.
        block.columns["image"]                          # uint8 [N, 28, 28, 1]

A piece is the unit of conversion work. Its records become one shard of their split, or one of each
split that is drawn from them.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from textwrap import shorten
from typing import Any

import numpy as np

from common.cli import as_list
from common.errors import UserError, readable
from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Encoding, Feature
from common.storage.files import list_files, list_folder, sha256_of, stat_file
from common.storage.storage import File
from components.convert.records import Column, Field, Kind, Layout, take, varint_bytes
from components.convert.splits import Splits

LABEL = "label"
Paths = str | Sequence[str] | None  # What `--source` gives: a path, several, or nothing.
_WIDTH = 200  # Most characters of a list of names in a printed line.
# Without `--shards`, small data make pieces of this size, and larger data about this many pieces.
_MIN_PIECE_BYTES, _USUAL_PIECES = 4_000_000, 16
SHARD_BYTES = 128_000_000  # Approximate largest size of a piece without `--shards`.
_STRING_BYTES = 1 << 24  # Largest size of a string.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """Records that are converted together.

    Attributes:
      split: Split in which the source has the records: `train`, `validation` or `test`.
      part: Which records of the source they are, as JSON. Each kind of source has its own form.
      num_bytes: Approximate number of bytes in the source.
    """

    split: str
    part: Any
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """Records of a piece, in order; few enough that every process can hold several blocks.

    Attributes:
      columns: Values by feature name, `label` included. Images of one shape are uint8
        [N, height, width, channels], contiguous; numbers are float32 or int64 [N]; texts and image
        files are Arrow arrays of N strings. The label is [N] or [N, k], as its task needs.
      missing: By name of each column with a default, bool [N]: where the source has no value.
      measures: Numbers for the statistics only, float32 or int64 [N], by name such
        as `image.height`.
      keys: Keys, uint64 [N]; records with equal keys are drawn for the same split. None for the
        content hashes.
      assigned: By split, bool [N]: which records the schema assigns to it.
    """

    columns: Mapping[str, Column]
    missing: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    measures: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    keys: np.ndarray | None = None
    assigned: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def take(self, rows: np.ndarray) -> Block:
        """Returns the columns, missing values and measures at ascending positions, int64 [M].

        Keys and assigned splits are left out.
        """
        columns, missing, measures = (
            {name: take(column, rows) for name, column in part.items()}
            for part in (self.columns, self.missing, self.measures)
        )
        return Block(columns=columns, missing=missing, measures=measures)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """Settings and resources of a conversion that a source uses while it is opened.

    Attributes:
      directory: Folder on this machine for files that the source makes, such as unpacked archives
        and staged tables. They stay until the dataset is finished.
      splits: Rule by which records are drawn for splits.
      shards: Number of training shards that was asked for; None to choose it by size.
      map: Returns `[function(task) for task in tasks]`, computed in several processes. The function
        may be a closure.
    """

    directory: str
    splits: Splits
    shards: int | None = None
    map: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]] = lambda function, tasks: [
        *map(function, tasks)
    ]

    def even_pieces(
        self, num_records: Mapping[str, int], num_bytes: Mapping[str, int]
    ) -> tuple[Piece, ...]:
        """Divides each split into pieces of consecutive records.

        The pieces of a split differ by at most one record, and none is empty. With `shards`, the
        training split gets that many pieces, and other splits get as many in proportion to their
        bytes. Without it, small data make few pieces, larger data at least 16, and no piece has
        many more bytes than `SHARD_BYTES`. A split has no more pieces than records.

        Args:
          num_records: Number of records, by split.
          num_bytes: Number of bytes in the source, by split; `train` is among them.

        Returns:
          The pieces in the order of the splits in `num_bytes`. Their `part` is [start, stop].
        """
        # Without bytes for training a conversion fails later, with a message.
        per_byte = (self.shards or 0) / (num_bytes["train"] or math.inf)
        usual = max(_MIN_PIECE_BYTES, sum(num_bytes.values()) // _USUAL_PIECES)
        most = min(SHARD_BYTES, usual)
        pieces = []
        for split, size in num_bytes.items():
            total = num_records[split]
            count = round(per_byte * size) if self.shards else math.ceil(size / most)
            count = min(max(1, count), total)
            starts = [i * total // count for i in range(count)]
            for start, stop in itertools.pairwise([*starts, total]):
                piece_bytes = (stop - start) * (size // total)
                pieces.append(Piece(split=split, part=[start, stop], num_bytes=piece_bytes))
        return tuple(pieces)


class Source(abc.ABC):
    """One kind of data that can be converted; subclasses are frozen dataclasses.

    Attributes:
      name: Name of the dataset, as given with `--dataset`.
      takes: Names of the options that the source accepts. Each is a field, which is None if the
        option is not given: `schema`, path of a schema file; `skip_bad`, largest number of wrong
        rows that are left out; `image_size`, (height, width) that a model gets of image files;
        `encoding`, how image files are stored, `raw` or `source`.
      schema: Schema of the files, or path of the schema file; None if the source needs none, or
        none is given.
    """

    name: str
    takes: frozenset[str] = frozenset()
    schema: Any = None

    @abc.abstractmethod
    def files(self, paths: Paths) -> list[File]:
        """Returns the files that `open` reads, in order, without the schema file.

        What has to be made before it can be read is made here, so that two calls return the same.

        Raises:
          UserError: If a path of `--source` does not exist, or has nothing that this source reads.
          ConnectionError: If a store does not answer.
        """

    @abc.abstractmethod
    def open(self, paths: Paths, opening: Opening) -> Examples:
        """Finds the pieces, and what has to be known of all records before the first is written.

        The same files and options give the same pieces.

        Raises:
          UserError: If files are missing, or do not hold what this source reads.
          ConnectionError: If a store does not answer.
        """

    def digest(self, paths: Paths) -> str:
        """Returns the SHA-256 (hexadecimal) over the schema, and the files' names and contents.

        Names are relative to the innermost folder that has all of the files.

        Raises:
          UserError: As `files` does, and if the schema or a file cannot be read.
          ConnectionError: If a store does not answer.
        """
        with readable(f"dataset {self.name!r}"):
            digest = hashlib.sha256((sha256_of(self.schema) if self.schema else "").encode())
            contents = {
                os.path.abspath(file.path): file.crc32c or sha256_of(file.path)
                for file in self.files(paths)
            }
        root = os.path.commonpath([os.path.dirname(path) for path in contents] or ["/"])
        for path, content in contents.items():
            name = os.path.relpath(path, root)
            digest.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def locate(self, paths: Paths, wanted: str) -> list[tuple[str, File | None]]:
        """Finds what is at each path that `--source` gives.

        Args:
          paths: Value of `--source`.
          wanted: What the source needs, in words, for the error.

        Returns:
          Each path, without a slash at its end, and its file, or None for a folder.

        Raises:
          UserError: If no path is given, or a path does not exist.
          ConnectionError: If a store does not answer.
        """
        needs = f"dataset {self.name!r} needs --source {wanted}"
        located = []
        for path in as_list(paths):
            path = path.rstrip("/") or "/"
            file = stat_file(path)
            if not file and not os.path.isdir(path) and not any(list_folder(path)):
                raise UserError(f"{path}: no such file or directory; {needs}")
            located.append((path, file))
        if not located:
            raise UserError(needs)
        return located

    def locate_one(
        self, paths: Paths, wanted: str, *, needs_folder: bool = False
    ) -> tuple[str, File | None]:
        """Returns the only path that `--source` gives, and its file, as `locate` does.

        Raises:
          UserError: If not exactly one path is given, it does not exist, or it is a file and has to
            be a folder.
          ConnectionError: If a store does not answer.
        """
        ((path, file), *others) = self.locate(paths, wanted)
        if others or (file and needs_folder):
            raise UserError(
                f"dataset {self.name!r} takes one --source {wanted}; not {' '.join(as_list(paths))}"
            )
        return path, file

    def locate_files(
        self, paths: Paths, wanted: str, patterns: Mapping[str, re.Pattern[str]]
    ) -> list[File]:
        """Returns the files that `--source` gives, those in a folder as `list_inside` finds them.

        Raises:
          UserError: If no path is given, a path does not exist, a file is given twice, or one is a
            link to nowhere. Also what `list_inside` raises.
          ConnectionError: If a store does not answer.
        """
        located = self.locate(paths, wanted)
        return existing_files(
            [f for path, file in located for f in ([file] if file else list_inside(path, patterns))]
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples(abc.ABC):
    """Opened source, which can be pickled and reads its pieces in any process of this machine.

    Attributes:
      name: Name of the dataset.
      origin: Where the data come from, in words.
      pieces: Pieces in the order of their shards; those for training come first.
      inputs: Features of the manifest, without the label and without statistics.
      task: Task of the label, as in the manifest.
      class_names: Names of the classes in the order of their numbers; all labels are in
        `range(len(class_names))`. Empty unless the task is classification.
      targets: Names of the label's values, in their order. Empty if the task is classification.
      arguments: Values that decide the content in addition to the options.
      most: By column name, the largest integer, or the most bytes of a string; 2**63 for a column
        with negative integers. A column that is not listed gets room for any value.
      deep: Encodings of the deep part of a model, as in the manifest.
      wide: Encodings of its linear part, as in the manifest.
      left_out: Number of rows that the schema's filter has left out.
      skipped: A line for each wrong row that is left out: its place, and what is wrong.
    """

    name: str
    origin: str
    pieces: tuple[Piece, ...]
    inputs: tuple[Feature, ...]
    task: str = CLASSIFICATION
    class_names: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    most: Mapping[str, int] = dataclasses.field(default_factory=dict)
    deep: tuple[Encoding, ...] = ()
    wide: tuple[Encoding, ...] = ()
    left_out: int = 0
    skipped: tuple[str, ...] = ()

    @abc.abstractmethod
    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Yields the records of a piece in order; reads every byte of the piece at most once.

        Raises:
          UserError: If a record cannot be used; the message names the file and the place in it.
          ConnectionError: If a store does not answer.
        """

    @property
    def native_splits(self) -> frozenset[str]:
        """Splits that the source has itself. The others are drawn from its training records."""
        return frozenset(piece.split for piece in self.pieces)

    @property
    def features(self) -> tuple[Feature, ...]:
        """Features of the manifest, label included, sorted by name; without statistics.

        For a classification, the label is an int64 scalar, the number of a class; for a regression
        a float32 scalar, or a vector of several targets; for `multi_label`, an int64 vector of 0
        and 1.
        """
        size = len(self.class_names or self.targets)
        if self.task == REGRESSION:
            label = Feature(name=LABEL, dtype="float32", shape=() if size == 1 else (size,))
        else:
            shape, largest = ((size,), 1) if self.task == MULTI_LABEL else ((), size - 1)
            range_ = (0.0, float(largest))
            label = Feature(name=LABEL, dtype="int64", shape=shape, value_range=range_)
        return tuple(sorted([*self.inputs, label], key=lambda feature: feature.name))

    def layout(self) -> Layout:
        """Returns the layout of the encoded records."""
        return Layout([self._field(feature) for feature in self.features])

    def _field(self, feature: Feature) -> Field:
        name = feature.name
        if feature.dtype == "string" or feature.encoding:
            num_bytes = self.most.get(name, _STRING_BYTES)
            return Field(name=name, kind="string", num_bytes=num_bytes)
        # A label has a range of values.
        most = feature.value_range[1] if feature.value_range else self.most.get(name, 1 << 63)
        kinds: dict[str, tuple[Kind, int]] = {
            "uint8": ("bytes", 1),
            "float32": ("float", 4),
            "int64": ("int64", varint_bytes(int(most))),
        }
        kind, num_bytes = kinds[feature.dtype]
        return Field(name=name, kind=kind, num_bytes=num_bytes * math.prod(feature.shape))


def image_feature(
    shape: tuple[int, ...],
    *,
    value_range: tuple[float, float] = (0.0, 255.0),
    encoding: str | None = None,
) -> Feature:
    """Returns `image` as a feature of the manifest.

    Args:
      shape: Height, width and channels of the stored pixels, or of what a model gets of a file.
      value_range: Smallest and largest value that a pixel can have.
      encoding: None for pixels; `image` for whole image files.
    """
    return Feature(
        name="image", dtype="uint8", shape=shape, encoding=encoding, value_range=value_range
    )


def list_inside(folder: str, patterns: Mapping[str, re.Pattern[str]]) -> list[File]:
    """Returns the files below a folder that match a pattern, sorted by path; prints the others.

    The first pattern that matches any file decides. Special files, such as FIFOs, count as others.
    Files that are hidden (by a name of a file or folder with `.` or `_` in front) are left out, and
    not printed.

    Args:
      folder: Path of the folder.
      patterns: Patterns for paths within the folder, by what such files are called in messages.

    Raises:
      UserError: If no file matches.
      ConnectionError: If a store does not answer.
    """
    files = {file.path.removeprefix(folder).strip("/"): file for file in list_files(folder)}
    visible = [name for name in files if not re.search(r"(^|/)[._]", name)]
    for kind, pattern in patterns.items():
        taken = {
            name: files[name]
            for name in visible
            if pattern.fullmatch(name) and not files[name].is_special
        }
        if taken:
            print_left_out(folder, [name for name in visible if name not in taken], kind)
            return [*taken.values()]
    raise UserError(f"{folder}: holds no {kind}")


def print_left_out(folder: str, names: Sequence[str], kind: str) -> None:
    """Prints which names in a folder are not read, since only a kind of files is.

    Prints nothing if there are none, or if this process has printed the same line already.
    """
    if names:
        listed = shorten(", ".join(names), _WIDTH)
        _print_once(f"{folder}: {len(names):,} left out: {listed} (only {kind} are read)")


# The files of a source are listed for its plan, and again when it is opened.
@functools.cache
def _print_once(line: str) -> None:
    print(line, flush=True)


def existing_files(files: list[File]) -> list[File]:
    """Returns the files; a `UserError` if one is given twice, or is a link to nowhere."""
    paths = set[str]()
    for file in files:
        if not file.version:
            raise UserError(f"{file.path}: no such file")
        if (path := os.path.abspath(file.path)) in paths:
            raise UserError(f"{file.path}: is given more than once")
        paths.add(path)
    return files
