"""The tallies of a source that is held as a whole.

    tallies = tally(source, parts, source.encodings(training), processes=2)

The columns are read once for it, a piece at a time, by several processes.
"""

import math
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from components.convert.report.tallies import Tallies
from components.convert.source import Source
from components.convert.writing import workers
from components.convert.writing.progress import track
from components.convert.writing.splits import BLOCK, Rows
from trainer.base.manifest import Encoding

_PIECE_BYTES = 1 << 24  # of a column that are read at once


def tally(
    source: Source,
    parts: Mapping[str, tuple[str, Rows]],
    encodings: Mapping[str, tuple[Encoding, ...]],
    *,
    processes: int,
) -> Tallies:
    """Reads every example of every split.

    Args:
      source: The examples.
      parts: By split, the native split and the rows in it; `train` is among them.
      encodings: The manifest's `deep` and `wide`, if any.
      processes: How many read at once.
    """
    known = types.SimpleNamespace(
        inputs=source.inputs,
        features=source.features,
        task=source.task,
        class_names=source.class_names,
        targets=source.targets,
        **{"deep": (), "wide": (), **encodings},
    )

    def work(piece: tuple[str, int, int], advance: workers.Advance) -> Any:
        split, start, stop = piece
        native, rows = parts[split]
        rows, columns, told, found = rows[start:stop], {}, {}, Tallies(known)
        for feature in source.features:
            name, column = feature.name, source.splits[native][feature.name]
            columns[name] = column[rows] if feature.encoding is None else _Later(column, rows)
            if feature.encoding:
                height, width = column.sizes[rows].T
                told |= {f"{name}.height": height, f"{name}.width": width, f"{name}.bytes": column.lengths[rows]}
        missing = {name: absent[rows] for name, absent in source.missing.get(native, {}).items()}
        found.add(split, columns, missing, told)
        advance(len(rows))
        return found.state()

    size = min(BLOCK, _room(source))
    pieces = [
        (split, i, min(i + size, len(rows))) for split, (_, rows) in parts.items() for i in range(0, len(rows), size)
    ]
    whole = Tallies(known)
    with track("statistics", sum(len(rows) for _, rows in parts.values()), "examples") as advance:
        for _, state in sorted(workers.run(work, pieces, processes=processes, advance=advance)):
            whole.merge(Tallies.of(known, state))
    return whole


class _Later:
    """Some rows of a column, which are read when they are asked for."""

    def __init__(self, column: Any, rows: np.ndarray):
        self._column, self._rows = column, rows

    def __getitem__(self, rows: np.ndarray) -> Any:
        return self._column[self._rows[rows]]


def _room(source: Source) -> int:
    """Examples of which the widest column has `_PIECE_BYTES`."""
    widths = [1]
    for feature in source.features:
        if feature.dtype == "string":
            widths.append(int(source.splits["train"][feature.name].lengths.mean()))
        elif feature.encoding is None:
            widths.append(math.prod(feature.shape))
    return max(1, _PIECE_BYTES // max(widths))
