"""Batches of the training split as a pure function of (seed, step, replica).

    choice = choose(manifest, data_dir="data", budget_bytes=4e9)   # of `trainer.data.placement`
    place = provide_files(choice, manifest)
    reader = open_reader(place, manifest, global_batch=128, seed=0, prepare=build.prepare)
    batch = reader.batch(reader.load(), step, first, count)        # graph operations in the step
    dataset = reader.dataset(step, context)                        # or ahead of it, in threads

A batch follows from the global step alone, wherever the examples are kept. So resuming is seeking,
no iterator state is saved, and with a fixed global batch the order of samples does not depend on
the number of workers. All of it is graph operations, so that workers of a parameter-server job can
run it.
"""

import abc
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from common.manifest import Manifest, Shard
from trainer.data import features
from trainer.data.augmentation import crop_and_flip
from trainer.data.features import Columns
from trainer.data.order import batch_indices, share
from trainer.data.placement import Choice
from trainer.data.shards import check_files

_AHEAD = 4  # Batches per replica that are ready before their step.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader(abc.ABC):
    """Batches of the training split.

    Attributes:
      manifest: Manifest of the dataset.
      data_dir: Local directory with the verified files.
      global_batch: Examples of one step over all replicas.
      seed: Seed of order and augmentation.
      prepare: Makes the model's inputs from the dataset's columns.
      augment: Value of `--augment`; it changes the dataset's own pixels, before `prepare`.
    """

    manifest: Manifest
    data_dir: str
    global_batch: int
    seed: int
    prepare: Callable[[Columns], Columns]
    augment: str = "none"

    @abc.abstractmethod
    def load(self) -> Any:
        """Returns the tensors that `batch` reads from, on the device where it is called."""

    @abc.abstractmethod
    def gather(self, loaded: Any, indices: tf.Tensor) -> Columns:
        """Returns examples of the split as columns [N, ...] by name; image files are not decoded.

        Args:
          loaded: Result of `load`.
          indices: Indices in the split, int64 [N].
        """

    @property
    def ahead(self) -> bool:
        """True if making batches takes so long that `dataset` makes them ahead of their steps.

        It does so in threads. Otherwise `batch` makes them in the step, as it always does in a
        parameter-server job.
        """
        return True

    @property
    def prepares_once(self) -> bool:
        """True if `load` prepares the columns, in place of `batch`."""
        return False

    @property
    def has_files(self) -> bool:
        """True if the dataset has image files, which must be decoded."""
        return any(feature.encoding == "image" for feature in self.manifest.features)

    def batch(
        self, loaded: Any, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor
    ) -> Columns:
        """Returns a part of the global batch of a step, as columns [count, ...] by name.

        Image files are decoded, images augmented if `augment` says so, and the columns prepared for
        the model, unless `load` has prepared them.

        Args:
          loaded: Result of `load`.
          step: Global step, an integer scalar.
          first: Position in the global batch at which the part begins.
          count: Number of examples.
        """
        indices = batch_indices(
            step,
            examples=self.manifest.split("train").examples,
            seed=self.seed,
            global_batch=self.global_batch,
            first=first,
            count=count,
        )
        columns = features.decode_files(self.gather(loaded, indices), self.manifest)
        if self.augment == "crop_flip":
            positions = tf.cast(first, tf.int64) + tf.range(count, dtype=tf.int64)
            columns["image"] = crop_and_flip(
                columns["image"], seed=self.seed, step=step, positions=positions
            )
        return columns if self.prepares_once else self.prepare(columns)

    def dataset(self, first_step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Returns an endless dataset of the batches of this process, made ahead of their steps.

        Threads make them. For each step the dataset yields the batch of each replica of the process
        in turn.

        Args:
          first_step: Global step of the first batch.
          context: Place of the process among those of the strategy.
        """
        replicas = context.num_replicas_in_sync
        here = replicas // context.num_input_pipelines
        loaded = self.load()

        def batch(i: tf.Tensor) -> Columns:
            replica = context.input_pipeline_id * here + i % here
            return self.batch(
                loaded,
                i // here,
                *share(replica, replicas=replicas, global_batch=self.global_batch),
            )

        # Only decoding image files takes so long that making
        # several batches at once is worth their memory.
        calls = tf.data.AUTOTUNE if self.has_files else None
        return (
            tf.data.Dataset.counter(first_step * here)
            .map(batch, num_parallel_calls=calls)
            .prefetch(_AHEAD * here)
        )

    @property
    def _shards(self) -> Sequence[Shard]:
        return self.manifest.split("train").shards

    @property
    def _paths(self) -> list[str]:
        return [os.path.join(self.data_dir, shard.file) for shard in self._shards]

    @property
    def _ends(self) -> np.ndarray:
        """Number of examples up to the end of each file, [files]."""
        return np.cumsum([shard.examples for shard in self._shards])


class ResidentReader(Reader):
    """Reads from the whole split in memory, with one tensor per column."""

    @property
    def ahead(self) -> bool:
        """True if image files must be decoded."""
        return self.has_files

    @property
    def prepares_once(self) -> bool:
        """True if columns need neither decoding nor augmentation, so that `load` prepares them."""
        return not self.has_files and self.augment == "none"

    def load(self) -> Columns:
        """Returns the columns of the split, prepared for the model if `prepares_once` is true.

        Otherwise they are as in the dataset: `batch` decodes, augments and prepares examples.

        Columns of int32 become int64: TensorFlow keeps int32 arguments of a function in the host's
        memory whatever their device, and would send the column to its replica in every step.
        """
        columns = self.parsed()
        if self.prepares_once:
            columns = self.prepare(columns)
        return {
            name: tf.cast(c, tf.int64) if c.dtype == tf.int32 else c for name, c in columns.items()
        }

    def parsed(self) -> Columns:
        """Returns the split's columns as the dataset has them; of image files their contents."""
        records = (
            tf.data.TFRecordDataset(self._paths).batch(int(self._ends[-1])).get_single_element()
        )
        return features.parse(records, self.manifest)

    def gather(self, loaded: Columns, indices: tf.Tensor) -> Columns:
        """Returns the rows `indices` of the columns, prepared or not, as `load` returns them."""
        return {name: tf.gather(column, indices) for name, column in loaded.items()}


class MappedReader(Reader):
    """Reads records of one length from files that are mapped into memory as tensors."""

    def load(self) -> tuple[tf.Tensor, ...]:
        """Returns the records of each file, uint8 [records, record_bytes]."""
        return tuple(
            tf.raw_ops.ImmutableConst(
                dtype=tf.uint8,
                shape=[shard.examples, self.manifest.record_bytes],
                memory_region_name=path,
            )
            for path, shard in zip(self._paths, self._shards, strict=True)
        )

    def gather(self, loaded: tuple[tf.Tensor, ...], indices: tf.Tensor) -> Columns:
        """Returns examples of the split as columns [N, ...] by name; image files are not decoded.

        Args:
          loaded: Records of each file, as `load` returns them.
          indices: Indices in the split, int64 [N]; they count on from one file to the next.
        """
        file = tf.searchsorted(self._ends, indices, side="right")
        rows = indices - tf.gather(np.append(0, self._ends), file)
        rows = tf.dynamic_partition(rows, file, len(loaded))
        places = tf.dynamic_partition(tf.range(tf.size(indices)), file, len(loaded))
        records = tf.dynamic_stitch(
            places, [tf.gather(f, r) for f, r in zip(loaded, rows, strict=True)]
        )
        return features.decode(records, self.manifest)


class IndexedReader(Reader):
    """Reads records that differ in length, at the offsets in their file's index."""

    def load(self) -> tf.Tensor:
        """Returns the offset of each record in its file, int64 [examples]."""
        indexes = [os.path.join(self.data_dir, shard.index or "") for shard in self._shards]
        offsets = [tf.io.decode_raw(tf.io.read_file(path), tf.int64) for path in indexes]
        return tf.concat([of_file[:-1] for of_file in offsets], 0)

    def gather(self, loaded: tf.Tensor, indices: tf.Tensor) -> Columns:
        """Returns examples of the split as columns [N, ...] by name; image files are not decoded.

        They are read one after another, and TensorFlow compares their checksums.

        Args:
          loaded: Offset of each record in its file, as `load` returns them.
          indices: Indices in the split, int64 [N]; they count on from one file to the next.

        Raises:
          tf.errors.DataLossError: When it runs, if a record is damaged.
        """

        def record(path: tf.Tensor, offset: tf.Tensor) -> tf.data.Dataset:
            # The public TFRecordDataset takes no offset.
            records = tf.raw_ops.TFRecordDatasetV2(
                filenames=[path],
                compression_type="",
                buffer_size=tf.constant(0, tf.int64),
                byte_offsets=[offset],
            )
            return tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string)).take(1)

        paths = tf.gather(self._paths, tf.searchsorted(self._ends, indices, side="right"))
        places = tf.data.Dataset.from_tensor_slices((paths, tf.gather(loaded, indices)))
        examples = places.flat_map(record).batch(tf.size(indices, tf.int64)).get_single_element()
        examples.set_shape(indices.shape)
        return features.parse(examples, self.manifest)


def open_reader(place: Choice, manifest: Manifest, **options: Any) -> Reader:
    """Returns the reader of the training split.

    It reads from memory in the mode `resident`. Otherwise it maps files whose records have one
    length, and reads others by their index.

    Args:
      place: Result of `placement.provide_files`.
      manifest: Manifest of the dataset.
      **options: Other attributes of `Reader`.

    Raises:
      UserError: If the split is empty, or a file is missing or not the one in the manifest.
    """
    check_files(place.data_dir, manifest.split("train").shards)
    by_length = MappedReader if manifest.record_bytes else IndexedReader
    kind = ResidentReader if place.mode == "resident" else by_length
    return kind(manifest=manifest, data_dir=place.data_dir, **options)
