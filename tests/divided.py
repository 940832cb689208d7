"""A source that is cut, put together again."""

import pathlib
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from common.manifest import Shard
from components.convert.sources.base import Paths, Reader
from components.convert.writing import parts
from components.convert.writing.byte_strings import Strings
from components.convert.writing.draws import Draws
from components.convert.writing.tfrecord import Layout


def whole(reader: Reader, source: Paths = None, *, pieces: int = 3, piece_bytes: int = 1 << 20) -> Any:
    """What the reader's source says, with `splits`: by split all columns, each piece being read by itself."""
    cut = reader.cut(source, pieces=pieces, piece_bytes=piece_bytes)
    found = reader.open(cut)
    if found.looks:
        found = found.settled([reader.open(cut).look(p, lambda at: np.ones(len(at), bool)) for p in cut.pieces])
    blocks: dict[str, list] = {piece.split: [] for piece in cut.pieces}
    last: dict[str, int] = {}
    for piece in cut.pieces:
        assert piece.extent and piece.position > last.get(piece.split, -1)
        for block in found.blocks(piece):
            assert (np.diff(block.positions) > 0).all()
            assert not len(block.positions) or (
                piece.position <= block.positions[0] and block.positions[-1] < piece.position + piece.extent
            )
            blocks[piece.split].append(block)
        last[piece.split] = piece.position + piece.extent - 1
    splits = {
        split: {name: _joined([block.columns[name] for block in each]) for name in each[0].columns}
        for split, each in blocks.items()
        if each
    }
    return types.SimpleNamespace(source=found, splits=splits, blocks=blocks, **vars(found))


def _joined(columns: list[Any]) -> Any:
    if isinstance(columns[0], Strings):
        return Strings.of([value for column in columns for value in column.tolist()])
    return np.concatenate(columns)


def drawn(count: int, *, validation_fraction: float = 0.1, test_fraction: float = 0.2, seed: int = 0) -> dict:
    """By split, the positions of so many training examples that go there."""
    draws = Draws({"train"}, validation_fraction=validation_fraction, test_fraction=test_fraction, seed=seed)
    chosen = dict(draws.of("train", np.arange(count)))
    return {split: np.flatnonzero(chosen[split]) for split in ("train", "validation", "test")}


def write(path: pathlib.Path, layout: Layout, columns: Mapping[str, Any], *, rows: Iterable[np.ndarray]) -> Shard:
    """Writes rows of the columns as one TFRecord file, with others of the same name beside it."""
    writer = parts.Writer(f"{path}.part", layout)
    for some in rows:
        writer.append({name: column[some] for name, column in columns.items()})
    shard = parts.join([(f"{path}.part", writer.close())], str(path), indexed=layout.record_bytes is None)
    path.with_suffix(".tfrecord").rename(path)
    return shard
