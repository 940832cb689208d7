"""A split dealt to replicas that score it together, batch by batch and all at once.

    parts = Parts(manifest, data_dir, "validation", batch_size=500, replicas=2)
    for batch in parts.batches(replica):   # parts.rounds of them, on every replica
        ...
    results[parts.own(replica)]            # of all replicas together: of each batch of the split once, in its order

Batches are those of the whole split, on however many replicas. All replicas take part in every round, since they agree in
each whether to go on; so one whose part is a batch shorter is given a neighbour's too, which does not count.
"""

import dataclasses
from collections.abc import Iterator

from trainer.base.manifest import Manifest
from trainer.data import records
from trainer.data.reader.order import share
from trainer.data.reader.storage import Columns


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a split; `rounds` batches go to each replica."""

    manifest: Manifest
    data_dir: str
    split: str
    batch_size: int
    replicas: int

    @property
    def examples(self) -> int:
        """Of the whole split."""
        return self.manifest.split(self.split).examples

    @property
    def rounds(self) -> int:
        """Batches of the longest part."""
        return -(-self._batches // self.replicas)

    def batches(self, replica: int) -> Iterator[Columns]:
        """Those that a replica is given, as `records.batches` reads them."""
        start = self._start(replica) * self.batch_size
        stop = min(start + self.rounds * self.batch_size, self.examples)
        return records.batches(self.manifest, self.data_dir, self.split, self.batch_size, start=start, stop=stop)

    def own(self, replica: int) -> slice:
        """Which of them are its part; it may be empty."""
        first, count = share(replica, replicas=self.replicas, global_batch=self._batches)
        begin = first - self._start(replica)
        return slice(begin, begin + count)

    @property
    def _batches(self) -> int:
        return -(-self.examples // self.batch_size)

    def _start(self, replica: int) -> int:
        first, _ = share(replica, replicas=self.replicas, global_batch=self._batches)
        return min(first, self._batches - self.rounds)
