"""A source that is cut into pieces, each of which any process can read by itself.

    cut = reader.cut(source, pieces=8, piece_bytes=64 << 20)     # once; all of it is JSON
    examples = reader.open(cut)                                  # in every process, and cheap
    looks = [examples.look(piece, training) for piece in cut.pieces]      # if `examples.looks`
    examples = examples.settled(looks)
    for block in examples.blocks(cut.pieces[0]):
        block.columns["fare"]                                    # float32 [N]

Every example has a position in its split: it never changes, whoever reads it, and decides in which split and which shard
the example ends. Positions ascend within a piece and from piece to piece; they need not be dense (they may be numbers of
rows or of bytes), and the extent of a split is one more than the last of them at most.
"""

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from common.manifest import CLASSIFICATION, Encoding, Feature
from components.convert.writing.byte_strings import Strings
from components.convert.writing.draws import By
from components.convert.writing.label_feature import LABEL, label_feature
from components.convert.writing.tfrecord import Field, Layout
from components.convert.writing.wire_format import varint_bytes

_VARINT_BYTES, _STRING_BYTES = 10, 1 << 24  # that any integer takes, and that no string is longer than
# Which of the next examples of a piece of the native training split are for training, bool [N]: given are their positions,
# and a `By` if something else decides.
Training = Callable[..., np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a native split.

    Attributes:
      split: `train`, `validation` or `test`.
      file: Which of the cut's files it lies in; None if that is not one.
      start: Where in the file it begins, and `stop` where it ends, in units of the reader's own (bytes, row groups, records).
      position: That its first example may have; those of the next piece begin at `position + extent`.
      extent: How many positions it takes.
      num_bytes: Of the source, about, so that work can be shared out.
    """

    split: str
    file: int | None = None
    start: int = 0
    stop: int = 0
    position: int
    extent: int
    num_bytes: int = 0


def evenly(split: str, extent: int, *, count: int, each_bytes: int, file: int | None = None) -> list[Piece]:
    """About so many pieces of examples that follow each other, as equal as can be, none of them empty."""
    starts = sorted({i * extent // count for i in range(count)} | {extent})
    return [
        Piece(
            split=split,
            file=file,
            start=start,
            stop=stop,
            position=start,
            extent=stop - start,
            num_bytes=(stop - start) * each_bytes,
        )
        for start, stop in itertools.pairwise(starts)
    ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cut:
    """A source's pieces as they were found once.

    Attributes:
      pieces: In the order of their splits and positions.
      facts: What else the reader has found out and does not want to look up again; JSON.
    """

    pieces: tuple[Piece, ...]
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def extents(self) -> dict[str, int]:
        """By native split, how many positions it has."""
        return {piece.split: piece.position + piece.extent for piece in self.pieces}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """Some examples of a piece, in order; few enough for every process to hold a few blocks at once.

    Attributes:
      positions: int64 [N], ascending.
      columns: By feature name, with `label`: uint8 [N, height, width, channels] of images of one shape, float32 or int64 [N],
        `Strings` of texts and of image files; the label [N] or [N, k] as the task has it.
      by: What decides to which split they go in place of their positions, if anything does.
      missing: By name of a column that has a default, where the source has no value, bool [N].
      told: What statistics are to say beside the columns, by name: float32 or int64 [N], such as `image.height`.
      left_out: How many rows the schema's filter has left out since the block before.
      skipped: The rows that were wrong and are left out, each with its place and what was wrong.
    """

    positions: np.ndarray
    columns: Mapping[str, np.ndarray | Strings]
    by: By | None = None
    missing: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    told: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    left_out: int = 0
    skipped: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source(abc.ABC):
    """Examples, and what is known of them.

    Attributes:
      name: Of the dataset.
      origin: Where it comes from, in words.
      inputs: The manifest's features but for the label, without statistics.
      task: As a manifest has it, like the next two.
      class_names: In the order of the labels, which all lie in `range(len(class_names))`; empty but of classification.
      targets: Names of the label's values, in their order; empty of classification.
      arguments: What decides the content beside the options.
      looks: Whether all pieces have to be looked at before any is written: then only `look` and `settled` may be called
        until the latter has given another source, which does not.
      most: By name, the largest integer of a column that has no negative one, and the most bytes of a string; of what is not
        there, nothing is known, and values are given as much room as they could ever need.
      deep: As a manifest has it, like `wide`.
    """

    name: str
    origin: str
    inputs: tuple[Feature, ...]
    task: str = CLASSIFICATION
    class_names: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    looks: bool = False
    most: Mapping[str, int] = dataclasses.field(default_factory=dict)
    deep: tuple[Encoding, ...] = ()
    wide: tuple[Encoding, ...] = ()

    @property
    def features(self) -> tuple[Feature, ...]:
        """The manifest's, without statistics."""
        label = label_feature(self.task, len(self.class_names or self.targets))
        return tuple(sorted([*self.inputs, label], key=lambda feature: feature.name))

    def layout(self) -> Layout:
        """How a record is laid out."""
        return Layout([self._field(feature) for feature in self.features])

    def _field(self, feature: Feature) -> Field:
        most = {LABEL: int(feature.value_range[1])} if feature.name == LABEL and feature.value_range else self.most
        kind, num_bytes = {"uint8": ("bytes", 1), "float32": ("float", 4)}.get(feature.dtype, ("int64", _VARINT_BYTES))
        if feature.dtype == "string" or feature.encoding:
            return Field(name=feature.name, kind="string", num_bytes=most.get(feature.name, _STRING_BYTES))
        if kind == "int64" and feature.name in most:
            num_bytes = varint_bytes(most[feature.name])
        return Field(name=feature.name, kind=kind, num_bytes=num_bytes * math.prod(feature.shape))

    @abc.abstractmethod
    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Reads a piece, each byte of it once; an error names the file and the place in it."""

    def look(self, piece: Piece, training: Training) -> Any:
        """What the piece says, as JSON: vocabularies of the training examples, the longest string, sizes of images."""
        raise NotImplementedError

    def settled(self, looks: Sequence[Any]) -> "Source":
        """The source as it is when all pieces have been looked at, given what each of them says, in their order."""
        raise NotImplementedError
