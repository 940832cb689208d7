"""Reads all pieces of a source, for tests."""

import collections
import dataclasses
import pickle
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa

from components.convert.source import Block, Examples, Opening
from components.convert.splits import Splits


@dataclasses.dataclass(frozen=True)
class Opened:
    """A source and all that it has.

    Attributes:
      splits: By native split, all columns by name.
      blocks: By native split, the blocks in order.
    """

    examples: Examples
    splits: dict[str, dict[str, Any]]
    blocks: dict[str, list[Block]]


def read_all(source, paths=None, *, splits=None, **options):
    """Opens a source and reads each piece, as another process would, by options of `Opening`."""
    with tempfile.TemporaryDirectory() as directory:
        opening = Opening(directory=directory, splits=splits or Splits(), **options)
        examples = pickle.loads(pickle.dumps(source.open(paths, opening)))
        blocks = collections.defaultdict(list)
        for piece in examples.pieces:
            assert piece.num_bytes >= 0
            blocks[piece.split] += examples.blocks(piece)
        columns = {
            split: {name: _join([b.columns[name] for b in each]) for name in each[0].columns}
            for split, each in blocks.items()
        }
    return Opened(examples, columns, dict(blocks))


def _join(columns):
    return (
        np.concatenate(columns) if isinstance(columns[0], np.ndarray) else pa.concat_arrays(columns)
    )
