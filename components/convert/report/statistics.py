"""What the splits of a source say of every feature, and how far they are from the training split.

    found = describe(source, parts, source.encodings(training), processes=2)
    found["test"].summaries["fare"].mean
    found["test"].drift["fare"]

The columns are read once for it, a piece at a time, by several processes.
"""

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from components.convert.report import drift
from components.convert.report.accumulators import Categories, Numbers, Pixels, Tally
from components.convert.source import Source
from components.convert.writing import workers
from components.convert.writing.label_feature import LABEL
from components.convert.writing.progress import track
from components.convert.writing.splits import BLOCK, Rows
from trainer.base.manifest import MULTI_LABEL, Encoding, Split

_SAMPLE = 1024  # training examples that say where histograms have their edges
_PIECE_BYTES = 1 << 24  # of a column that are read at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Quantity:
    """What is tallied: what `read` makes of a column and rows, in tallies like that which `like` makes of a sample."""

    column: str
    read: Callable[[Any, np.ndarray], Any] = lambda column, rows: column[rows]
    like: Callable[[Any], Tally] = Numbers


def describe(
    source: Source,
    parts: Mapping[str, tuple[str, Rows]],
    encodings: Mapping[str, tuple[Encoding, ...]],
    *,
    processes: int,
) -> dict[str, Split]:
    """Reads every example of every split, and gives the manifest's splits as far as that goes: without shards.

    Args:
      source: The examples.
      parts: By split, the native split and the rows in it; `train` is among them.
      encodings: The manifest's `deep` and `wide`, if any.
      processes: How many read at once.
    """
    quantities = _quantities(source, encodings)

    def read(name: str, native: str, rows: np.ndarray) -> tuple[Any, np.ndarray | None]:
        column = quantities[name].column
        missing = source.missing.get(native, {}).get(column)
        return quantities[name].read(source.splits[native][column], rows), None if missing is None else missing[rows]

    empty, room = {}, _room(source)
    native, training = parts["train"]
    sample = _sample(training, min(_SAMPLE, room))
    for name, quantity in quantities.items():
        values, missing = read(name, native, sample)
        empty[name] = quantity.like(values if missing is None else values[~missing])

    def work(piece: tuple[str, int, int], advance: workers.Advance) -> dict[str, Tally]:
        split, start, stop = piece
        native, rows = parts[split]
        tallies, rows = copy.deepcopy(empty), rows[start:stop]
        for name, tally in tallies.items():
            tally.add(*read(name, native, rows))
        advance(len(rows))
        return tallies

    size = min(BLOCK, room)
    pieces = [
        (split, i, min(i + size, len(rows))) for split, (_, rows) in parts.items() for i in range(0, len(rows), size)
    ]
    whole = {split: copy.deepcopy(empty) for split in parts}
    with track("statistics", sum(len(rows) for _, rows in parts.values()), "examples") as advance:
        for i, tallies in workers.run(work, pieces, processes=processes, advance=advance):
            for name, tally in tallies.items():
                whole[pieces[i][0]][name].merge(tally)
    return {
        split: _described(source, tallies, None if split == "train" else whole["train"], len(parts[split][1]))
        for split, tallies in whole.items()
    }


def _described(
    source: Source, tallies: Mapping[str, Tally], training: Mapping[str, Tally] | None, examples: int
) -> Split:
    """What is known of a split; `training` is None if it is the training split."""
    counted = [(LABEL, i) for i in range(len(source.class_names))]
    if source.task == MULTI_LABEL:
        counted = [(f"{LABEL}.{target}", 1) for target in source.targets]
    # The class histogram says all of what is counted.
    summaries = {name: tally.summary() for name, tally in tallies.items() if name not in dict(counted)}
    drifts = None
    if training is not None:
        summaries = {name: dataclasses.replace(summary, edges=None) for name, summary in summaries.items()}
        distances = {name: drift.distance(training[name], tally) for name, tally in tallies.items()}
        drifts = {name: distance for name, distance in distances.items() if distance is not None}
    return Split(
        examples=examples,
        class_histogram=tuple(tallies[name].count(value) for name, value in counted),
        shards=(),
        summaries=summaries,
        drift=drifts,
    )


def _quantities(source: Source, encodings: Mapping[str, tuple[Encoding, ...]]) -> dict[str, _Quantity]:
    """By the name of the summary."""
    single = [e for part in encodings.values() for e in part if e.kind in ("vocabulary", "hash")]
    vocabularies = {e.columns[0]: e.vocabulary for e in sorted(single, key=lambda e: len(e.vocabulary or ()))}
    vocabularies[LABEL] = range(len(source.class_names))
    found = {}
    for feature in source.features:
        name = feature.name
        if feature.encoding == "image":
            found[f"{name}.height"] = _Quantity(column=name, read=lambda column, rows: column.sizes[rows, 0])
            found[f"{name}.width"] = _Quantity(column=name, read=lambda column, rows: column.sizes[rows, 1])
            found[f"{name}.bytes"] = _Quantity(column=name, read=lambda column, rows: column.lengths[rows])
        elif name == LABEL and source.targets:
            like = Numbers if feature.dtype == "float32" else Categories
            for i, target in enumerate(source.targets):
                found[f"{name}.{target}"] = _Quantity(
                    column=name, read=lambda column, rows, i=i: column.reshape(len(column), -1)[rows, i], like=like
                )
        elif feature.shape:
            found[name] = _Quantity(column=name, like=Pixels)
        elif feature.dtype == "string" or name in vocabularies:
            like = functools.partial(Categories, vocabulary=vocabularies.get(name))
            found[name] = _Quantity(column=name, like=like)
        else:
            found[name] = _Quantity(column=name)
    return found


def _sample(rows: Rows, most: int) -> np.ndarray:
    """At most so many of the rows, evenly spread."""
    count = min(len(rows), most)
    chosen = np.arange(count) * len(rows) // count
    found, start = [], 0
    for block in rows.blocks():
        found.append(block[chosen[(chosen >= start) & (chosen < start + len(block))] - start])
        start += len(block)
    return np.concatenate(found)


def _room(source: Source) -> int:
    """Examples of which the widest column has `_PIECE_BYTES`."""
    widths = [1]
    for feature in source.features:
        if feature.dtype == "string":
            widths.append(int(source.splits["train"][feature.name].lengths.mean()))
        elif feature.encoding is None:
            widths.append(math.prod(feature.shape))
    return max(1, _PIECE_BYTES // max(widths))
