"""Order of the training examples: a pure function of (seed, step), whatever holds them.

order = Order.of(manifest.split("train"), seed=0)
indices = order(step, global_batch=128, first=0, count=128)  # positions in the split

Every epoch is a permutation of its own of the whole split, on two levels, so that a split larger than the
memory is read from the disk in large pieces. The split falls into chunks of neighbouring examples, a megabyte or two each. The chunks are permuted; those that
then stand together make a window; the examples of a window are permuted. A split that is no larger than a window, which
most are, is simply permuted.

Nothing of it is remembered: index ciphers (TensorFlow's RandomIndexShuffle) give the place of any example at once, so
step 1,000,000 is as near as step 0. Sizes follow from the manifest alone, never from a machine.
"""

import dataclasses
from typing import Self

import tensorflow as tf

from common.manifest import Split

CHUNK_BYTES = 2 << 20  # long enough that a disk reads it in one piece
WINDOW_BYTES = 256 << 20
# The places of chunks, the place of the short chunk, and the first window's examples are drawn apart.
_CHUNKS, _SHORT, _WINDOWS = 0, 1, 2


def share(replica: int | tf.Tensor, *, replicas: int, global_batch: int) -> tuple[int | tf.Tensor, int | tf.Tensor]:
    """First position and count of a replica's part of the global batch; counts differ by at most one."""
    first = replica * global_batch // replicas
    if global_batch % replicas == 0:
        return first, global_batch // replicas  # a static shape where there can be one
    return first, (replica + 1) * global_batch // replicas - first


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """The order of a split."""

    examples: int
    seed: int
    chunk: int  # neighbouring examples that stay in one window; the last chunk may be shorter
    window: int = WINDOW_BYTES // CHUNK_BYTES  # most chunks of a window

    @classmethod
    def of(cls, split: Split, seed: int) -> Self:
        """The order of a split as its manifest's sizes ask for."""
        mean_bytes = sum(shard.bytes for shard in split.shards) / split.examples
        return cls(examples=split.examples, seed=seed, chunk=max(1, int(CHUNK_BYTES / mean_bytes)))

    def __call__(
        self, step: int | tf.Tensor, *, global_batch: int, first: int | tf.Tensor, count: int | tf.Tensor
    ) -> tf.Tensor:
        """Indices [count] into the split of the examples `first` to `first + count` of the global batch of a step.

        Batches run on across epochs, so none is short.
        """
        start = tf.cast(step, tf.int64) * global_batch + tf.cast(first, tf.int64)
        position = start + tf.range(count, dtype=tf.int64)
        epoch, place = position // self.examples, position % self.examples
        if self.windows == 1:
            return self._shuffle(place, self.examples - 1, epoch, _CHUNKS)
        short_slot = self._short_slot(epoch)
        window = self._slot(place, short_slot)[0] * self.windows // self.chunks
        start, end = (self._start(self._first_slot(w), short_slot) for w in (window, window + 1))
        place = start + self._shuffle(place - start, end - start - 1, epoch, window + _WINDOWS)
        slot, row = self._slot(place, short_slot)
        return self._chunk(slot, short_slot, epoch) * self.chunk + row

    @property
    def chunks(self) -> int:
        """Chunks of the split."""
        return -(-self.examples // self.chunk)

    @property
    def windows(self) -> int:
        """Windows of an epoch; they differ by at most one chunk."""
        return -(-self.chunks // self.window)

    # Below, a slot is a place of a chunk within its epoch. The last chunk may be short, and takes a random slot.

    def _first_slot(self, window: int | tf.Tensor) -> int | tf.Tensor:
        return -(-window * self.chunks // self.windows)

    def _short_slot(self, epoch: tf.Tensor) -> tf.Tensor:
        return self._shuffle(tf.zeros_like(epoch), self.chunks - 1, epoch, _SHORT)

    def _start(self, slot: tf.Tensor, short_slot: tf.Tensor) -> tf.Tensor:
        """Examples of the epoch before a slot."""
        return slot * self.chunk - tf.where(slot > short_slot, self._missing, 0)

    def _slot(self, place: tf.Tensor, short_slot: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The slot that a place among the epoch's examples lies in, and the row there."""
        padded = place + tf.where(place >= (short_slot + 1) * self.chunk - self._missing, self._missing, 0)
        return padded // self.chunk, padded % self.chunk

    def _chunk(self, slot: tf.Tensor, short_slot: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """The chunk in a slot."""
        whole = slot - tf.cast(slot > short_slot, tf.int64)
        last = tf.constant(self.chunks - 1, tf.int64)
        return tf.where(slot == short_slot, last, self._shuffle(tf.minimum(whole, last - 1), last - 1, epoch, _CHUNKS))

    @property
    def _missing(self) -> tf.Tensor:
        """Examples that the last chunk lacks."""
        return tf.constant(self.chunks * self.chunk - self.examples, tf.int64)

    def _shuffle(self, index: tf.Tensor, last: int | tf.Tensor, epoch: tf.Tensor, stream: int | tf.Tensor) -> tf.Tensor:
        """Where each index [N] goes in a permutation of 0 to `last`, one for each seed, epoch and stream."""
        stream, seed = tf.zeros_like(epoch) + stream, tf.zeros_like(epoch) + self.seed
        # The public wrapper pads a seed a row wrongly in TF 2.21; the op itself takes [N, 3].
        seeds = tf.stack([seed, epoch, stream], axis=1)
        # With the op's own 4 rounds, epochs resemble each other (correlation 0.9 was seen); 8 cost a tenth more.
        return tf.raw_ops.RandomIndexShuffle(index=index, seed=seeds, max_index=tf.cast(last, tf.int64), rounds=8)
