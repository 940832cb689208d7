"""A split dealt to replicas that score it together, batch by batch and all at once.

Batches are those of the whole split, on however many replicas. All replicas take part in every round, since they agree in
each whether to go on; so one whose part is a batch shorter is given a neighbour's too, which does not count.
"""

from collections.abc import Iterator

from common.manifest import Manifest
from trainer.data import records
from trainer.data.order import share
from trainer.data.storage import Columns


def batches(
    manifest: Manifest, data_dir: str, split: str, batch_size: int, *, replica: int, replicas: int
) -> Iterator[tuple[Columns, bool]]:
    """Reads as many batches for each replica, as `records.batches` does, and says of each whether it counts there."""
    examples = manifest.split(split).examples
    count = -(-examples // batch_size)
    first, own = share(replica, replicas=replicas, global_batch=count)
    rounds = -(-count // replicas)
    start = min(first, count - rounds)
    stop = min((start + rounds) * batch_size, examples)
    read = records.batches(manifest, data_dir, split, batch_size, start=start * batch_size, stop=stop)
    for position, columns in enumerate(read, start):
        yield columns, first <= position < first + own
