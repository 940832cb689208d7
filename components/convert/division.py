"""How a conversion is divided: which examples of which piece go to which shard, decided before any of them is read.

    division = Division.of(reader.cut(source, ...), shards=8, ...)
    drawn = division.draws.of(piece.split, block.positions, block.by)
    for split, shards in division.places(piece.split, block.positions, drawn): ...

It is a small file, made once, and the same for every process that works on the conversion.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from common.errors import UserError
from components.convert.pieces import Cut, Piece
from components.convert.writing.draws import Draws


@dataclasses.dataclass(frozen=True, kw_only=True)
class Division:
    """A source that is cut.

    Attributes:
      cut: Its pieces.
      looks: Whether all pieces are looked at before any is written.
      files: Those of the source, as an `Origin` has them.
      arguments: That decide the content.
      shards: How many each split has at most; None if their size decides, when they are written. In the former case a shard has the
        examples of a range of positions, all of one length, of its native split; so it is known without those before it. As drawing
        them is left to chance, shards of one split differ a little in length.
    """

    cut: Cut
    looks: bool
    files: Sequence[Sequence]
    arguments: Mapping[str, Any]
    shards: Mapping[str, int] | None = None

    @classmethod
    def of(cls, cut: Cut, *, shards: int | None, **facts: Any) -> Self:
        """Divides into so many training shards, and of other splits in proportion; or by size, later."""
        made = cls(cut=cut, **facts)
        if shards is None:
            return made
        if shards > (most := cut.extents["train"]):
            raise UserError(f"--shards {shards}: there are only {most} training examples, or fewer")
        expected = {
            split: extent * share
            for native, extent in cut.extents.items()
            for split, share in made.draws.shares(native).items()
        }
        by_split = {split: max(1, round(shards * n / expected["train"])) for split, n in expected.items()}
        return dataclasses.replace(made, shards=by_split)

    @functools.cached_property
    def draws(self) -> Draws:
        """Which examples are for what."""
        names = ("validation_fraction", "test_fraction")
        fractions = {name: self.arguments[name] for name in names}
        return Draws(frozenset(self.cut.extents), seed=self.arguments["split_seed"], **fractions)

    def places(
        self, native: str, positions: np.ndarray, drawn: Iterable[tuple[str, np.ndarray]]
    ) -> Iterator[tuple[str, list[tuple[int, np.ndarray]]]]:
        """By split, the shards that examples of a native split at some positions go to, and which of them do, int64 [N]."""
        for split, chosen in drawn:
            rows = np.flatnonzero(chosen)
            if self.shards is None:
                yield split, [(0, rows)] if len(rows) else []
                continue
            count, extent = self.shards[split], self.cut.extents[native]
            starts = np.array([i * extent // count for i in range(count)])
            where = np.searchsorted(starts, positions[rows], side="right") - 1
            yield split, [(int(shard), rows[where == shard]) for shard in np.unique(where)]

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> Self:
        """The division of which `dataclasses.asdict` has made that."""
        pieces = tuple(Piece(**piece) for piece in raw["cut"]["pieces"])
        return cls(**{**raw, "cut": Cut(pieces=pieces, facts=raw["cut"]["facts"])})
