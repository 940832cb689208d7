"""Batches of the training split as a pure function of (seed, step, replica), wherever the examples are kept.

    choice = choose(manifest, data_dir="data", budget_bytes=4e9)   # of `trainer.data.placement`
    place = provide_files(choice, manifest)
    reader = open_reader(place, manifest, global_batch=128, seed=0, prepare=build.prepare)
    batch = reader.batch(reader.load(), step, first, count)        # graph operations in the step
    dataset = reader.dataset(step, context)                        # or ahead of it, in threads

A batch follows from the global step alone. So resuming is seeking, no iterator state is saved, and with a fixed global
batch the order of samples does not depend on the number of workers. All of it is graph operations, so that workers of a
parameter-server job can run it.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from common.manifest import Manifest
from trainer.data import features
from trainer.data.augmentation import crop_and_flip
from trainer.data.features import Columns
from trainer.data.order import Order, share
from trainer.data.placement import Choice
from trainer.data.shards import check_files

_AHEAD = 4  # batches a replica that wait for their step


class MappedFiles:
    """Records of one length in local files, mapped into memory as tensors."""

    def __init__(self, manifest: Manifest, directory: str) -> None:
        """Takes the directory of verified files."""
        self._manifest, shards = manifest, manifest.split("train").shards
        self._files = {os.path.join(directory, shard.file): shard.examples for shard in shards}

    def load(self) -> tuple[tf.Tensor, ...]:
        """Returns the records of each file, uint8 [records, record_bytes]."""
        size = self._manifest.record_bytes
        return tuple(
            tf.raw_ops.ImmutableConst(dtype=tf.uint8, shape=[count, size], memory_region_name=path)
            for path, count in self._files.items()
        )

    def gather(self, loaded: tuple[tf.Tensor, ...], indices: tf.Tensor) -> Columns:
        """Returns rows of each file, put back into their order, decoded."""
        starts = tf.constant(np.cumsum([0, *self._files.values()]))
        file = tf.cast(tf.searchsorted(starts[1:], indices, side="right"), tf.int32)
        rows = tf.dynamic_partition(indices - tf.gather(starts, file), file, len(loaded))
        places = tf.dynamic_partition(tf.range(tf.size(indices)), file, len(loaded))
        records = tf.dynamic_stitch(places, [tf.gather(f, r) for f, r in zip(loaded, rows, strict=True)])
        return features.decode(records, self._manifest)

    def columns(self) -> Columns:
        """Returns the whole split."""
        parts = [features.decode(records, self._manifest) for records in self.load()]
        return {name: tf.concat([part[name] for part in parts], 0) for name in parts[0]}


class IndexedFiles:
    """Records that differ in length in local files, each read at the place that the file's index says."""

    def __init__(self, manifest: Manifest, directory: str) -> None:
        """Takes the directory of verified files."""
        self._manifest, shards = manifest, manifest.split("train").shards
        self._paths = [os.path.join(directory, shard.file) for shard in shards]
        self._indexes = [os.path.join(directory, shard.index) for shard in shards]
        self._ends = np.cumsum([shard.examples for shard in shards])

    def load(self) -> tf.Tensor:
        """Returns where the records begin in their files, int64 [examples]."""
        offsets = [tf.io.decode_raw(tf.io.read_file(path), tf.int64) for path in self._indexes]
        return tf.concat([of_file[:-1] for of_file in offsets], 0)

    def gather(self, loaded: tf.Tensor, indices: tf.Tensor) -> Columns:
        """Returns records one after the other; TensorFlow compares each with its checksums."""
        file = tf.searchsorted(tf.constant(self._ends), indices, side="right")
        places = tf.data.Dataset.from_tensor_slices((tf.gather(self._paths, file), tf.gather(loaded, indices)))
        examples = places.flat_map(_record).batch(tf.size(indices, tf.int64)).get_single_element()
        examples.set_shape(indices.shape)
        return features.parse(examples, self._manifest)

    def columns(self) -> Columns:
        """Returns the whole split; of image files their contents."""
        examples = tf.data.TFRecordDataset(self._paths).batch(int(self._ends[-1])).get_single_element()
        return features.parse(examples, self._manifest)


def _record(path: tf.Tensor, offset: tf.Tensor) -> tf.data.Dataset:
    """Returns the one record that begins there; the public TFRecordDataset takes no offset."""
    records = tf.raw_ops.TFRecordDatasetV2(
        filenames=[path], compression_type="", buffer_size=tf.constant(0, tf.int64), byte_offsets=[offset]
    )
    return tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string)).take(1)


class Resident:
    """The whole split in memory, a tensor a column.

    TensorFlow keeps int32 arguments of a function in the host's memory whatever their device, and would send such a column
    to its replica whole in every step; so their bits pass for float32 ones.
    """

    def __init__(self, columns: Callable[[], Columns]) -> None:
        self._columns = columns  # reads the split, by graph operations

    def load(self) -> tuple[Columns, Columns]:
        """Returns the columns as they are, and those of int32 as float32."""
        columns = self._columns()
        integers = {name: columns.pop(name) for name in list(columns) if columns[name].dtype == tf.int32}
        return columns, {name: tf.bitcast(column, tf.float32) for name, column in integers.items()}

    def gather(self, loaded: tuple[Columns, Columns], indices: tf.Tensor) -> Columns:
        """Returns rows of the columns."""
        plain, integers = ({name: tf.gather(c, indices) for name, c in columns.items()} for columns in loaded)
        return {**plain, **{name: tf.bitcast(rows, tf.int32) for name, rows in integers.items()}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader:
    """Batches of the training split."""

    storage: Resident | MappedFiles | IndexedFiles
    order: Order  # whose seed is that of the augmentation too
    global_batch: int  # examples of one step over all replicas
    # The features that are image files, and the shapes to decode them to.
    files: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    # What the model makes of the columns of a batch, in so far as the storage has not done it.
    prepare: Callable[[Columns], Columns] = dict
    augment: str = "none"
    # Whether batches are made in threads ahead of their steps, by `dataset`, because that takes long; else in the step,
    # by `batch`, as in every step of a parameter-server job.
    ahead: bool = False

    def load(self) -> Any:
        """Returns the tensors that `batch` reads from, on whichever device runs this."""
        return self.storage.load()

    def batch(self, loaded: Any, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor) -> Columns:
        """Returns the examples `first` to `first + count` of the global batch of a step, by name [count, ...]."""
        return self._finished(self._gathered(loaded, step, first, count), step, first, count)

    def dataset(self, first_step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """Returns the batches of one process from a step on, without end: of each step those of its replicas in turn."""
        replicas = context.num_replicas_in_sync
        here = replicas // context.num_input_pipelines
        loaded, among = self.load(), {"replicas": replicas, "global_batch": self.global_batch}

        def place(i: tf.Tensor) -> tuple[tf.Tensor, int | tf.Tensor, int | tf.Tensor]:
            return i // here, *share(context.input_pipeline_id * here + i % here, **among)

        # Only decoding of image files takes so long that several batches are worth their memory.
        calls = tf.data.AUTOTUNE if self.files else None
        return (
            tf.data.Dataset.counter(first_step * here)
            .map(lambda i: (i, self._gathered(loaded, *place(i))))
            .map(lambda i, columns: self._finished(columns, *place(i)), num_parallel_calls=calls)
            .prefetch(_AHEAD * here)
        )

    def _gathered(self, loaded: Any, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor) -> Columns:
        indices = self.order(step, global_batch=self.global_batch, first=first, count=count)
        return self.storage.gather(loaded, indices)

    def _finished(self, columns: Columns, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor) -> Columns:
        """Returns the columns as the model takes them: images decoded and augmented as pixels, then prepared."""
        for name, shape in self.files.items():
            columns = {**columns, name: features.decode_images(columns[name], shape)}
        if self.augment == "crop_flip":
            positions = tf.cast(first, tf.int64) + tf.range(count, dtype=tf.int64)
            image = crop_and_flip(columns["image"], seed=self.order.seed, step=step, positions=positions)
            columns = {**columns, "image": image}
        return self.prepare(columns)


def open_reader(
    place: Choice,
    manifest: Manifest,
    *,
    global_batch: int,
    seed: int,
    prepare: Callable[[Columns], Columns],
    augment: str = "none",
) -> Reader:
    """Returns the reader of the training split.

    Args:
      place: What `placement.provide_files` returns.
      manifest: Of the dataset.
      global_batch: Examples of a step over all replicas.
      seed: Of order and augmentation.
      prepare: What the model makes of the dataset's columns, of all at once where they are resident and not augmented.
      augment: As `--augment` has it; it changes the dataset's own pixels, before `prepare`.

    Raises:
      UserError: If a file is missing, or is another than when it was provided.
    """
    split, images = manifest.split("train"), features.image_files(manifest)
    check_files(place.data_dir, split.shards)
    files = (MappedFiles if manifest.record_bytes else IndexedFiles)(manifest, place.data_dir)
    storage: Resident | MappedFiles | IndexedFiles = files
    prepare_batch = prepare
    if place.mode == "resident" and not images and augment == "none":
        storage, prepare_batch = Resident(lambda: prepare(files.columns())), dict
    elif place.mode == "resident":  # what is still to be decoded or augmented cannot be prepared before
        storage = Resident(files.columns)
    return Reader(
        storage=storage,
        order=Order.of(split, seed),
        global_batch=global_batch,
        files=images,
        prepare=prepare_batch,
        augment=augment,
        ahead=place.mode == "mapped" or bool(images),
    )
