"""The stages of a conversion: cut, look, write, merge. Those in between are of single pieces, in any order, in any process.

    division = origin.cut()
    work = Work(options=options, division=division, source=origin.reader.open(division.cut))
    numbers = range(len(division.cut.pieces))
    work = work.settled([work.look(i) for i in numbers])              # if `division.looks`
    written = [work.write(i, place) for i in numbers]
    manifest, tallies = work.merge(written, place)

What one stage hands to another is JSON.
"""

import collections
import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from common.errors import UserError, readable
from common.manifest import Manifest, Shard, Split, Summary
from common.storage.storage import map_in_threads
from components.convert import pieces
from components.convert.division import Division
from components.convert.options import Options
from components.convert.report.tallies import Tallies
from components.convert.writing import parts
from components.convert.writing.label_feature import LABEL
from components.convert.writing.progress import track
from components.convert.writing.splits import SPLITS
from components.convert.writing.tfrecord import taken

_MB = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """The work on a conversion that is divided.

    Attributes:
      left: By piece that this process has written, how many samples those behind it may still add.
    """

    options: Options
    division: Division
    source: pieces.Source
    left: dict[int, dict[str, int]] = dataclasses.field(default_factory=dict)

    def settled(self, looks: Sequence[Any]) -> Self:
        """The work when all pieces have been looked at, given what was seen in each."""
        return dataclasses.replace(self, source=self.source.settled(looks))

    def look(self, i: int) -> Any:
        """Looks at a piece."""
        return self.source.look(self.division.cut.pieces[i], self.division.draws.training)

    def write(self, i: int, place: str | None, advance: Callable[[int], object] = lambda num_bytes: None) -> Any:
        """Writes the parts of a piece into a directory; without one they are only counted and hashed. Tells what is in them, as JSON.

        `advance` is told how many bytes of the source are done, about, now and then.
        """
        piece, layout, tallies = self.division.cut.pieces[i], self.source.layout(), Tallies(self.source)
        writers: dict[str, tuple[str, parts.Writer]] = {}  # by split: positions ascend, so one shard at a time
        told, written = 0, {}
        if before := [number for number in self.left if number < i]:
            tallies.samples.left = dict(self.left[max(before)])
        try:
            for block in self._blocks(piece):
                tallies.add_others(block)
                if not len(block.positions):
                    continue
                drawn = self.division.draws.of(piece.split, block.positions, block.by)
                for split, shards in self.division.places(piece.split, block.positions, drawn):
                    for shard, rows in shards:
                        columns, missing, more = (
                            {name: taken(column, rows) for name, column in each.items()}
                            for each in (block.columns, block.missing, block.told)
                        )
                        tallies.add(split, columns, missing, more)
                        before, writer = writers.get(split, (None, None))
                        if self.division.shards is None and before:  # a piece that cannot be cut may make many shards
                            full = writer.num_bytes >= self.options.shard_mb * _MB
                            shard = int(before.rpartition("-")[2]) + full
                        key = f"{split}-{shard:05d}"
                        if key != before:
                            if writer:
                                written[before] = dataclasses.asdict(writer.close())
                            writer = parts.Writer(place and f"{place}/{i:05d}-{key}", layout)
                            writers[split] = key, writer
                        writer.append(columns)
                done = int(piece.num_bytes * (int(block.positions[-1]) + 1 - piece.position) / piece.extent)
                advance(done - told)
                told = done
            written |= {key: dataclasses.asdict(writer.close()) for key, writer in writers.values()}
        finally:
            for _, writer in writers.values():
                writer.abandon()
        advance(piece.num_bytes - told)
        self.left[i] = tallies.samples.left
        return {"parts": written, "tallies": tallies.state()}

    def _blocks(self, piece: pieces.Piece) -> Iterator[pieces.Block]:
        with readable(f"dataset {self.options.dataset!r}"):
            yield from self.source.blocks(piece)

    def merge(self, written: Sequence[Mapping[str, Any]], place: str | None) -> tuple[Manifest, Tallies]:
        """Makes the shards, in the output directory, and a manifest; without a place looks at the shards that are there.

        There have to be as many training examples as shards. Neither manifest nor page are written yet.
        """
        tallies = Tallies(self.source)
        for each in written:
            tallies.absorb(each["tallies"])
        training = tallies.examples("train")
        if tallies.left_out and not any(map(tallies.examples, SPLITS)):
            raise UserError(f"dataset {self.source.name!r}: the schema's filter leaves no row")
        if training < (self.options.shards or 1):
            what = f"--shards {self.options.shards}" if self.options.shards else f"dataset {self.source.name!r}"
            raise UserError(f"{what}: there are only {training} training examples")
        described, shards = tallies.describe(), self._shards(written)
        indexed, output = self.source.layout().record_bytes is None, self.options.directory
        jobs = [
            (split, f"{output}/{split}-{number:05d}-of-{len(each):05d}", named)
            for split, each in shards.items()
            for number, named in enumerate(each)
        ]

        def join(job: tuple[str, str, list[tuple[str, parts.Part]]]) -> Shard:
            _, target, named = job
            if place is None:
                return parts.shard_of([part for _, part in named], target, indexed=indexed)
            shard = parts.join([(f"{place}/{name}", part) for name, part in named], target, indexed=indexed)
            advance(shard.bytes)
            return shard

        due = sum(part.num_bytes for _, _, named in jobs for _, part in named)
        with track("joining", max(1, due), "bytes") as advance:
            made = map_in_threads(join, jobs)  # by threads: the system copies
        joined = {split: [shard for job, shard in zip(jobs, made, strict=True) if job[0] == split] for split in shards}
        return self._manifest(described, joined), tallies

    def _shards(self, written: Sequence[Mapping[str, Any]]) -> dict[str, list[list[tuple[str, parts.Part]]]]:
        """By split the shards that are not empty, each with the names and facts of its parts."""
        found: dict[str, list] = {split: [] for split in SPLITS}
        for i, each in enumerate(written):
            for key, part in sorted(each["parts"].items()):
                split, _, shard = key.partition("-")
                found[split].append((int(shard), (f"{i:05d}-{key}", parts.Part(**part))))
        if self.division.shards is None:
            return {
                split: _by_size([part for _, part in each], self.options.shard_mb * _MB)
                for split, each in found.items()
            }
        number = operator.itemgetter(0)  # by it alone: the order of the names would be another than that of the pieces
        return {
            split: [[part for _, part in shard] for _, shard in itertools.groupby(sorted(each, key=number), number)]
            for split, each in found.items()
        }

    def _manifest(self, described: Mapping[str, Split], shards: Mapping[str, Sequence[Shard]]) -> Manifest:
        source, layout, training = self.source, self.source.layout(), described["train"].summaries
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
                name: dataclasses.replace(split, shards=tuple(shards.get(name, ())))
                for name, split in described.items()
            },
            arguments={**self.options.arguments, **source.arguments},
            deep=source.deep,
            wide=source.wide,
        )


def _by_size(named: Sequence[tuple[str, parts.Part]], most_bytes: float) -> list[list[tuple[str, parts.Part]]]:
    """Parts in order as shards of about the same size, which is at most that of the argument, about."""
    total = sum(part.num_bytes for _, part in named)
    size, before, shards = total / max(1, math.ceil(total / most_bytes)), 0, collections.defaultdict(list)
    for name, part in named:
        shards[int((before + part.num_bytes / 2) / size)].append((name, part))
        before += part.num_bytes
    return list(shards.values())


def _statistics(summary: Summary) -> Summary:
    return Summary(missing=summary.missing, mean=summary.mean, std=summary.std, min=summary.min, max=summary.max)
