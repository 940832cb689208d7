"""Which shards a conversion has, what each of them holds, and the manifest once they are written.

    plan = Plan(source, options)
    written = {shard.name: plan.write(directory, shard) for shard in plan.shards}
    plan.manifest(written, plan.tally(processes=2).describe()).save(directory)

Every shard can be written by itself, in any order.
"""

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Callable, Mapping

from components.convert.options import Options
from components.convert.report import statistics
from components.convert.report.tallies import Tallies
from components.convert.source import Source
from components.convert.writing import splits, tfrecord
from components.convert.writing.label_feature import LABEL
from trainer.base.errors import UserError
from trainer.base.feature_summary import Summary
from trainer.base.manifest import Encoding, Manifest, Shard, Split


@dataclasses.dataclass(frozen=True, kw_only=True)
class Planned:
    """A shard to be written, by its position among those of its split: the examples from `start` to `stop`."""

    split: str
    position: int
    count: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Of its files, without what they end in."""
        return f"{self.split}-{self.position:05d}-of-{self.count:05d}"


class Plan:
    """A conversion of a source; its shards are in the order of their splits and positions."""

    def __init__(self, source: Source, options: Options):
        """Plans it; to have fewer training examples than shards is a user error."""
        self.source, self._options, self._layout = source, options, source.layout()
        self._parts = splits.carve(
            {native: len(columns[LABEL]) for native, columns in source.splits.items()},
            validation_fraction=options.validation_fraction,
            test_fraction=options.test_fraction,
            seed=options.split_seed,
        )
        self.training = self._parts["train"][1]
        training = len(self.training)
        if (options.shards or 1) > training:
            raise UserError(
                f"--shards {options.shards or 1}: there are only {training} training examples to put into them"
            )
        self.shards = tuple(
            shard
            for split, (_, rows) in self._parts.items()
            if len(rows)
            for shard in _cut(split, len(rows), max(1, round((options.shards or 1) * len(rows) / training)))
        )

    @functools.cached_property
    def num_bytes(self) -> int:
        """What the files of all shards have together, to the byte, before they are written."""
        examples = sum(len(rows) for _, rows in self._parts.values())
        found = examples * (self._layout.least_bytes + 8)  # of the record, and of its hash
        if self._layout.strings:
            found += 8 * (examples + len(self.shards))  # of the indexes
            for native, rows in self._parts.values():
                texts = [self.source.splits[native][name].lengths for name in self._layout.strings]
                found += sum(int(t[block].sum()) for block in rows.blocks() for t in texts)
        return found

    def write(
        self,
        directory: pathlib.Path,
        shard: Planned,
        advance: Callable[[int], object] = lambda examples: None,
    ) -> Shard:
        """Writes a shard's files into the directory, and tells how many examples were written, now and then."""
        native, rows = self._parts[shard.split]
        return tfrecord.write(
            directory / f"{shard.name}.tfrecord",
            self._layout,
            self.source.splits[native],
            rows=rows.blocks(shard.start, shard.stop),
            advance=advance,
        )

    @functools.cached_property
    def _encodings(self) -> dict[str, tuple[Encoding, ...]]:
        return self.source.encodings(self.training)

    def tally(self, *, processes: int) -> Tallies:
        """What each split says of every feature, read with so many processes."""
        return statistics.tally(self.source, self._parts, self._encodings, processes=processes)

    def manifest(self, written: Mapping[str, Shard], described: Mapping[str, Split]) -> Manifest:
        """The manifest, given all shards by name and what the splits say."""
        source, layout, training = self.source, self._layout, described["train"].summaries
        return Manifest(
            name=source.name,
            origin=source.origin,
            label=LABEL,
            task=source.task,
            class_names=source.class_names,
            targets=source.targets,
            record_bytes=layout.record_bytes,
            features=tuple(
                dataclasses.replace(
                    feature,
                    offset=layout.offsets.get(feature.name),
                    num_bytes=layout.widths.get(feature.name),
                    statistics=_statistics(training[feature.name])
                    if not feature.shape and feature.name != LABEL
                    else None,
                )
                for feature in source.features
            ),
            splits={
                name: dataclasses.replace(
                    split, shards=tuple(written[shard.name] for shard in self.shards if shard.split == name)
                )
                for name, split in described.items()
            },
            arguments={**self._options.arguments, **source.arguments},
            **self._encodings,
        )


def _statistics(summary: Summary) -> Summary:
    return Summary(missing=summary.missing, mean=summary.mean, std=summary.std, min=summary.min, max=summary.max)


def _cut(split: str, examples: int, count: int) -> list[Planned]:
    """So many shards of a split: their sizes are as equal as can be, and the larger ones come first."""
    starts = [i * (examples // count) + min(i, examples % count) for i in range(count + 1)]
    return [
        Planned(split=split, position=i, count=count, start=start, stop=stop)
        for i, (start, stop) in enumerate(itertools.pairwise(starts))
    ]
