"""Where a conversion begins: what reads the source, where that is, and which files it has, all found once.

origin = Origin.of(options)
division = origin.cut()
source = origin.reader.open(division.cut)
"""

import dataclasses
from collections.abc import Sequence
from typing import Self

from common.storage.files import sha256_of
from components.convert.division import Division
from components.convert.options import Options
from components.convert.sources import registry
from components.convert.sources.base import Paths, Reader

_MB = 1_000_000
_PARTS = 2  # that a shard of a given size is made of at least, so that it comes near that size
# Of the source: what is small is shared out to all processes, what is large is not noted in too many pieces.
_LEAST_PIECE_BYTES, _MOST_PIECE_BYTES, _PIECES, _MOST_PIECES = 4 * _MB, 64 * _MB, 32, 100_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """A source that was found.

    Attributes:
      options: Of the conversion.
      reader: Of the dataset.
      source: Where it is; of a dataset that is downloaded, where that is.
      files: Of each its path, its bytes, and what tells whether it changes; the schema is one of them.
    """

    options: Options
    reader: Reader
    source: Paths
    files: Sequence[list[str | int]]

    @classmethod
    def of(cls, options: Options) -> Self:
        """That of the dataset which the options name, if there is such a source."""
        reader, source = registry.located(options.dataset, options.source, **options.reading)
        files = [[file.path, file.num_bytes, file.version] for file in reader.files(source)]
        if reader.schema:
            files.append(["schema", 0, sha256_of(reader.schema)])
        return cls(options=options, reader=reader, source=source, files=files)

    def cut(self) -> Division:
        """Cuts the source, which may turn out to be none."""
        shards, total = self.options.shards, sum(num_bytes for _, num_bytes, _ in self.files)
        by_size = max(int(self.options.shard_mb * _MB / _PARTS), 1 + total // _MOST_PIECES)
        most = _MOST_PIECE_BYTES if shards else by_size
        piece_bytes = min(max(_LEAST_PIECE_BYTES, total // _PIECES), most)
        cut = self.reader.cut(self.source, pieces=shards or 1, piece_bytes=piece_bytes)
        looks = self.reader.open(cut).looks
        return Division.of(cut, looks=looks, files=self.files, arguments=self.options.arguments, shards=shards)

    def fits(self, division: Division) -> bool:
        """Whether a division is that of such options, and of files that have not changed since."""
        return division.arguments == self.options.arguments and division.files == self.files
