"""The interface `Source` of all that a dataset is made from; each kind is a file in `sources/`.

    source = find_source("mnist")                                      # components.convert.sources.registry
    examples = source.open("downloads/mnist", opening)                 # once
    for block in examples.blocks(examples.pieces[0]):                  # in any process, as often as need be
        block.columns["image"]                                         # uint8 [N, 28, 28, 1]

A piece is the unit of work: its records become one shard of their split, or of each split that is drawn from them.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
import hashlib
import itertools
import math
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from common.errors import UserError
from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Encoding, Feature
from common.storage.files import list_files, list_folder, sha256_of, stat_file
from common.storage.storage import File, is_remote
from components.convert.records import Column, Field, Layout, varint_bytes
from components.convert.splits import Splits

LABEL = "label"
Paths = str | Sequence[str] | None
_MOST_NAMES = 5  # In a line of names.
_MIN_PIECE_BYTES, _USUAL_PIECES = 4_000_000, 16
_VARINT_BYTES, _STRING_BYTES = 10, 1 << 24  # Most bytes of an integer, and of a string.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """Records that are converted together.

    Attributes:
      split: Split that the source has them in: `train`, `validation` or `test`.
      part: Which records of the source they are, in its own terms; JSON.
      num_bytes: Bytes of the source, about.
    """

    split: str
    part: Any
    num_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """Records of a piece, in order; few enough that every process can hold a few blocks at once.

    Attributes:
      columns: By feature name, with `label`: uint8 [N, height, width, channels] (contiguous) of
        images of one shape, float32 or int64 [N], an Arrow array of texts or of image files; the
        label [N] or [N, k] as the task has it.
      missing: By name of a column that has a default, where the source has no value, bool [N].
      measures: Numbers for the statistics alone, by name such as `image.height`: float32 or int64
        [N].
      hashes: Content hashes, uint64 [N], where they are known already.
      keys: uint64 [N]; records with equal keys are drawn for one split. None for the content
        hashes.
      assigned: By split, which records the schema puts there, bool [N].
    """

    columns: Mapping[str, Column]
    missing: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    measures: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    hashes: np.ndarray | None = None
    keys: np.ndarray | None = None
    assigned: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Opening:
    """Settings of a conversion, and resources, that a source uses while it is opened.

    Attributes:
      directory: Folder on this machine for files that a source makes (unpacked archives, staged
        tables); they stay until the dataset is finished.
      splits: Which records are drawn for which split.
      shards: Number of training shards that was asked for, or None.
      shard_bytes: Size of a shard, about, in bytes of the source.
      map: Returns `[function(task) for task in tasks]`, in several processes; the function may be a
        closure.
    """

    directory: str
    splits: Splits
    shards: int | None = None
    shard_bytes: int = 128_000_000
    map: Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]] = lambda function, tasks: [
        *map(function, tasks)
    ]

    def even_pieces(
        self, num_records: Mapping[str, int], num_bytes: Mapping[str, int]
    ) -> tuple[Piece, ...]:
        """Divides the records of each split into pieces of consecutive records, of equal size to within one record, none empty.

        Without `shards`, small data make few pieces, larger ones at least 16, and none has more
        than `shard_bytes`.

        Args:
          num_records: By split.
          num_bytes: By split, in the source.

        Returns:
          The pieces, whose `part` is [start, stop].
        """
        pieces = []
        for split, count in self._num_pieces(num_bytes).items():
            starts = sorted(
                {i * num_records[split] // count for i in range(count)} | {num_records[split]}
            )
            for start, stop in itertools.pairwise(starts):
                size = (stop - start) * (num_bytes[split] // num_records[split])
                pieces.append(Piece(split=split, part=[start, stop], num_bytes=size))
        return tuple(pieces)

    def _num_pieces(self, num_bytes: Mapping[str, int]) -> dict[str, int]:
        """Returns the number of pieces of each split, given its bytes in the source."""
        if self.shards:
            return {
                split: max(1, round(self.shards * n / num_bytes["train"]))
                for split, n in num_bytes.items()
            }
        most = min(
            self.shard_bytes, max(_MIN_PIECE_BYTES, sum(num_bytes.values()) // _USUAL_PIECES)
        )
        return {split: max(1, math.ceil(n / most)) for split, n in num_bytes.items()}


class Source(abc.ABC):
    """One kind of data, a frozen dataclass.

    Attributes:
      name: As given with `--dataset`.
      takes: Options that mean something to it, each a field that is None if it is not given:
        `schema`, a file; `skip_bad`, how many rows may be wrong; `image_size`, (height, width) that
        a model gets of image files; `encoding`, how these are stored, `raw` or `source`;
        `export_dir`, a folder of a bucket.
      schema: What its files hold, or the file that says so; None where that is known, or not given.
    """

    name: str
    takes: frozenset[str] = frozenset()
    schema: Any = None

    @abc.abstractmethod
    def files(self, paths: Paths) -> list[File]:
        """Returns the files that are read, in order, without the schema; nothing is read.

        Raises:
          UserError: If there is nothing at a path, or not what this source reads.
        """

    @abc.abstractmethod
    def open(self, paths: Paths, opening: Opening) -> Examples:
        """Finds the pieces, and what has to be known of all records before the first is written.

        The same files and options give the same pieces.

        Raises:
          UserError: If the files are missing, or are not what they should be.
        """

    def digest(self, paths: Paths) -> str:
        """Returns the SHA-256 (hexadecimal) over schema, names and contents of the files: it changes when the source does."""
        names = relative_names(self.files(paths))
        named = [(name, file.crc32c or sha256_of(file.path)) for file, name in names.items()]
        if self.schema:
            named.insert(0, ("", sha256_of(self.schema)))
        return digest_of(named)

    def locate(self, paths: Paths, wanted: str) -> list[tuple[str, File | None]]:
        """Returns each path that `--source` gives, with the file that it is, or None of a folder.

        Args:
          paths: As given.
          wanted: What the source needs, in words, for the error.

        Raises:
          UserError: If there is no path, or nothing at one.
        """
        needs = f"dataset {self.name!r} needs --source {wanted}"
        if not paths:
            raise UserError(needs)
        located = []
        for path in [paths] if isinstance(paths, str) else paths:
            path = path.rstrip("/") if is_remote(path) else str(pathlib.Path(path))
            file = stat_file(path)
            if not file and not os.path.isdir(path) and not any(list_folder(path)):
                raise UserError(f"{path}: no such file or directory; {needs}")
            located.append((path, file))
        return located

    def locate_one(self, paths: Paths, wanted: str) -> tuple[str, File | None]:
        """Returns the only path that is given, as `locate` does; more are an error too."""
        if paths and not isinstance(paths, str):
            raise UserError(
                f"--source {' '.join(paths)}: dataset {self.name!r} takes one path, not "
                f"{len(paths)}"
            )
        return self.locate(paths, wanted)[0]

    def locate_folder(self, paths: Paths, wanted: str) -> str:
        """Returns the only path that is given, which has to be a folder."""
        path, file = self.locate_one(paths, wanted)
        if file:
            raise UserError(
                f"{path}: no such directory; dataset {self.name!r} needs --source {wanted}"
            )
        return path

    def locate_files(
        self, paths: Paths, wanted: str, list_inside: Callable[[str], list[File]]
    ) -> list[File]:
        """Returns the files that are given; a folder stands for those that `list_inside` finds in it."""
        located = self.locate(paths, wanted)
        return unique_files(
            [f for path, file in located for f in ([file] if file else list_inside(path))]
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples(abc.ABC):
    """A source that was opened. It can be pickled, and reads its pieces in any process of this machine.

    Attributes:
      name: Name of the dataset.
      origin: Where it comes from, in words.
      pieces: In the order of their shards; the training pieces come first.
      inputs: The manifest's features but for the label, without statistics.
      task: As the manifest has it.
      class_names: In the order of the labels, which all lie in `range(len(class_names))`; empty but
        of classification.
      targets: Names of the label's values, in their order; empty of classification.
      arguments: What decides the content beside the options.
      most: By name, the largest integer of a column that has no negative one, and the most bytes of
        a string; a column that is not there gets as much room as a value could ever need.
      deep: As the manifest has it, like `wide`.
      left_out: Number of rows that the schema's filter leaves out.
      skipped: Rows that are wrong and left out, each with its place and what is wrong.
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
        """Reads a piece, each byte of it once; an error names the file and the place in it."""

    @property
    def native_splits(self) -> frozenset[str]:
        """Splits that the source itself has; the others are drawn from its training records."""
        return frozenset(piece.split for piece in self.pieces)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The manifest's, without statistics."""
        label = label_feature(self.task, len(self.class_names or self.targets))
        return tuple(sorted([*self.inputs, label], key=lambda feature: feature.name))

    def layout(self) -> Layout:
        """Returns how a record is laid out."""
        return Layout([self._field(feature) for feature in self.features])

    def _field(self, feature: Feature) -> Field:
        name = feature.name
        most = (
            int(feature.value_range[1])
            if name == LABEL and feature.value_range
            else self.most.get(name)
        )
        if feature.dtype == "string" or feature.encoding:
            return Field(
                name=name, kind="string", num_bytes=_STRING_BYTES if most is None else most
            )
        int_bytes = _VARINT_BYTES if most is None else varint_bytes(most)
        kind, num_bytes = {
            "uint8": ("bytes", 1),
            "float32": ("float", 4),
            "int64": ("int64", int_bytes),
        }[feature.dtype]
        return Field(name=name, kind=kind, num_bytes=num_bytes * math.prod(feature.shape))


def label_feature(task: str, size: int) -> Feature:
    """Returns the label as a feature of the manifest: one of so many classes, or that many targets."""
    if task == REGRESSION:
        return Feature(name=LABEL, dtype="float32", shape=() if size == 1 else (size,))
    if task == MULTI_LABEL:
        return Feature(name=LABEL, dtype="int64", shape=(size,), value_range=(0.0, 1.0))
    return Feature(name=LABEL, dtype="int64", value_range=(0.0, size - 1.0))


def image_feature(
    shape: tuple[int, int, int],
    *,
    value_range: tuple[float, float] = (0.0, 255.0),
    encoding: str | None = None,
) -> Feature:
    """Returns the feature `image`: pixels of that height, width and channels, or whole files that a model gets so."""
    return Feature(
        name="image", dtype="uint8", shape=shape, encoding=encoding, value_range=value_range
    )


def list_inside(
    folder: str, patterns: Mapping[str, re.Pattern[str]], *, print_others: bool
) -> list[File]:
    """Returns the files below a folder that match the first of the patterns that any matches, but for hidden ones.

    Args:
      folder: Path of the folder.
      patterns: Of names of files below it, with what such files are called.
      print_others: Whether to print which other files there are.

    Raises:
      UserError: If there is no such file.
    """
    visible = {}
    for file in list_files(folder):
        name = file.path.removeprefix(folder).strip("/")
        if not re.search(r"(^|/)[._]", name):
            visible[name] = file
    for kind, pattern in patterns.items():
        taken = {
            name: file
            for name, file in visible.items()
            if pattern.fullmatch(name) and not file.is_special
        }
        if taken:
            if print_others:
                print_left_out(
                    folder, sorted(visible.keys() - taken.keys()), f"only {kind} are read"
                )
            return [*taken.values()]
    raise UserError(f"{folder}: holds no {kind}")


def relative_names(files: Sequence[File]) -> dict[File, str]:
    """Returns the path of each file in the innermost folder that has all of them."""
    root = os.path.commonpath(
        [os.path.dirname(os.path.abspath(file.path)) for file in files] or ["/"]
    )
    return {file: os.path.relpath(file.path, root) for file in files}


def print_left_out(folder: str, names: Sequence[str], taken: str) -> None:
    """Prints a line that names what is not read of a folder, of many a few, and says what is read."""
    if names:
        more = f" and {len(names) - _MOST_NAMES:,} more" * (len(names) > _MOST_NAMES)
        print(f"{folder}: left out: {', '.join(names[:_MOST_NAMES])}{more} ({taken})", flush=True)


def unique_files(files: list[File]) -> list[File]:
    """Returns the files; one that is given twice, or is a link to nowhere, is a `UserError`."""
    paths = [file.path if is_remote(file.path) else os.path.abspath(file.path) for file in files]
    for path, times in collections.Counter(paths).items():
        if times > 1:
            raise UserError(f"{path}: is given more than once")
    return existing_files(files)


def existing_files(files: list[File]) -> list[File]:
    """Returns the files; a link to nowhere is a `UserError`."""
    if absent := [file.path for file in files if not file.version]:
        raise UserError(f"{absent[0]}: no such file")
    return files


def downloads_dir() -> pathlib.Path:
    """Returns where downloads are kept, in the user's cache (https://specifications.freedesktop.org/basedir-spec)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    cache = pathlib.Path(base if os.path.isabs(base) else "~/.cache").expanduser()
    return cache / "tfrecord-training-pipeline"


def digest_of(files: Iterable[tuple[str, str]]) -> str:
    """Returns the SHA-256 (hexadecimal) over names and checksums of contents, in this order."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{content}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
