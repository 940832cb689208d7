"""What the examples of each split say of every feature, how far they are from the training split, and the first of them.

    tallies = Tallies(source)
    tallies.add("train", columns, missing, told)           # of a block, all of one split
    tallies.absorb(other.state())                          # JSON; of the piece that comes next, whoever has read it
    found = tallies.describe()
    found["test"].summaries["fare"].mean
    found["test"].drift["fare"]

The same pieces in their order give the same result, whoever has read them.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from common.errors import UserError
from common.manifest import MULTI_LABEL, Split
from components.convert.pieces import Block, Source
from components.convert.report import drift
from components.convert.report.accumulators import Categories, Numbers, Pixels
from components.convert.report.samples import Samples
from components.convert.writing.byte_strings import Strings
from components.convert.writing.label_feature import LABEL
from components.convert.writing.splits import SPLITS

_OF_FILES = ("height", "width", "bytes")  # that are told of images which are stored as whole files


class Tallies:
    """Of a source that is settled.

    Attributes:
      samples: The first training examples.
      left_out: How many rows the schema's filter leaves out.
      skipped: The rows that are wrong and left out, each with its place and what is wrong.
    """

    def __init__(self, source: Source):
        self._source, self._quantities, self.samples = source, _quantities(source), Samples(source)
        self._examples, self.left_out, self.skipped = dict.fromkeys(SPLITS, 0), 0, []
        self._splits = {split: {name: q[2]() for name, q in self._quantities.items()} for split in SPLITS}

    def state(self) -> Any:
        """All of it, as JSON."""
        tallies = {
            split: {name: tally.state() for name, tally in self._splits[split].items()}
            for split, examples in self._examples.items()
            if examples
        }
        others = {"left_out": self.left_out, "skipped": self.skipped}
        return {"examples": self._examples, "tallies": tallies, "samples": self.samples.state(), **others}

    def add(
        self,
        split: str,
        columns: Mapping[str, np.ndarray | Strings],
        missing: Mapping[str, np.ndarray],
        told: Mapping[str, np.ndarray],
    ) -> None:
        """Takes in examples of a split, as in a `pieces.Block`."""
        columns = {**columns, **told}
        for name, (column, target, _) in self._quantities.items():
            values = columns[column]
            if target is not None:
                values = values.reshape(len(values), -1)[:, target]
            self._splits[split][name].add(values, missing.get(column))
        self._examples[split] += len(columns[LABEL])
        if split == "train":
            self.samples.add(columns, missing)

    def add_others(self, block: Block) -> None:
        """Takes in what became of rows of a block that are no examples."""
        self.left_out += block.left_out
        self.skipped += block.skipped

    def absorb(self, state: Any) -> None:
        """Takes in what others know, of examples of the same source that come later."""
        for split, tallies in state["tallies"].items():
            self._examples[split] += state["examples"][split]
            for name, tally in tallies.items():
                self._splits[split][name].absorb(tally)
        self.samples.absorb(state["samples"])
        self.left_out += state["left_out"]
        self.skipped += state["skipped"]

    def examples(self, split: str) -> int:
        """How many a split has."""
        return self._examples[split]

    def describe(self) -> dict[str, Split]:
        """The manifest's splits, without shards; a column that is to be normalised needs values in the training split."""
        edges = {
            name: tally.edges([tallies[name] for tallies in self._splits.values()])
            for name, tally in self._splits["train"].items()
        }
        found = {split: self._described(split, edges) for split in SPLITS}
        for encoding in (*self._source.deep, *self._source.wide):
            if encoding.kind == "numeric" and found["train"].summaries[(name := encoding.columns[0])].mean is None:
                raise UserError(f"column {name!r} has no values in the training split, so it cannot be normalised")
        return found

    def _described(self, split: str, edges: Mapping[str, tuple[float, ...]]) -> Split:
        tallies, training = self._splits[split], self._splits["train"]
        counted = [(LABEL, i) for i in range(len(self._source.class_names))]
        if self._source.task == MULTI_LABEL:
            counted = [(f"{LABEL}.{target}", 1) for target in self._source.targets]
        # The class histogram says all of what is counted.
        said = {name: tally for name, tally in tallies.items() if name not in dict(counted)}
        summaries, drifts = {name: tally.summary(edges[name]) for name, tally in said.items()}, None
        if split != "train":
            summaries = {name: dataclasses.replace(summary, edges=None) for name, summary in summaries.items()}
            distances = {name: drift.distance(training[name], tally, edges[name]) for name, tally in tallies.items()}
            drifts = {name: distance for name, distance in distances.items() if distance is not None}
        return Split(
            examples=self._examples[split],
            class_histogram=tuple(tallies[name].count(value) for name, value in counted),
            shards=(),
            summaries=summaries,
            drift=drifts,
        )


def _quantities(source: Source) -> dict[str, tuple[str, int | None, Callable[[], Numbers]]]:
    """What is tallied by the name of its summary: a column, which target of it, and what to begin with."""
    single = [e for e in (*source.deep, *source.wide) if e.kind in ("vocabulary", "hash")]
    vocabularies = {e.columns[0]: e.vocabulary for e in sorted(single, key=lambda e: len(e.vocabulary or ()))}
    vocabularies[LABEL] = range(len(source.class_names))
    found = {}
    for feature in source.features:
        name, dtype = feature.name, feature.dtype
        if feature.encoding == "image":
            for told in (f"{name}.{part}" for part in _OF_FILES):
                found[told] = told, None, functools.partial(Numbers, np.int64)
        elif name == LABEL and source.targets:
            empty = functools.partial(Numbers if dtype == "float32" else Categories, dtype)
            found |= {f"{name}.{target}": (name, i, empty) for i, target in enumerate(source.targets)}
        elif feature.shape:
            found[name] = name, None, functools.partial(Pixels, feature.shape[-1])
        elif dtype == "string" or name in vocabularies:
            known = vocabularies.get(name)
            if known is not None:
                known = frozenset(value.encode() if isinstance(value, str) else value for value in known)
            found[name] = name, None, functools.partial(Categories, dtype, known)
        else:
            found[name] = name, None, functools.partial(Numbers, dtype)
    return found
