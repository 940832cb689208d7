"""Batches of the training split as a pure function of (seed, step, replica), whatever holds the examples.

    reader = open_reader(...)                               # `trainer.data.placement` decides what holds them
    batch = reader.batch(reader.load(), step, first, count) # graph operations in the step
    dataset = reader.dataset(step, context)                 # or ahead of it, in threads

A batch follows from the global step alone. So resuming is seeking, no iterator state is saved, and with a fixed global
batch the order of samples does not depend on the number of workers.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from trainer.data import augmentation, decoding
from trainer.data.order import Order, share
from trainer.data.storage import Columns, Storage

_AHEAD = 4  # batches a replica that wait for their step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader:
    """Batches of the training split."""

    storage: Storage
    order: Order  # whose seed is that of the augmentation too
    global_batch: int  # examples of one step over all replicas
    # The features that are image files, and the shapes to decode them to.
    files: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    # What the model makes of the columns of a batch, in so far as the storage has not done it.
    prepare: Callable[[Columns], Columns] = dict
    augment: str = "none"
    # Whether batches are made in threads ahead of their steps, by `dataset`, because that takes long or needs Python; else
    # in the step, by `batch`.
    ahead: bool = False

    def load(self) -> Any:
        """The tensors that `batch` reads from, on whichever device runs this."""
        return self.storage.load()

    def batch(self, loaded: Any, step: tf.Tensor, first: int | tf.Tensor, count: int | tf.Tensor) -> Columns:
        """The examples `first` to `first + count` of the global batch of a step, by name [count, ...]."""
        return self._finished(self._gathered(loaded, step, first, count), step, first, count)

    def dataset(self, first_step: int, context: tf.distribute.InputContext) -> tf.data.Dataset:
        """The batches of one process from a step on, without end: of each step those of its replicas in turn."""
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
        positions = tf.cast(first, tf.int64) + tf.range(count, dtype=tf.int64)
        draw = {"seed": self.order.seed, "step": step, "positions": positions}
        crops = augmentation.draw_crops(**draw) if self.augment == "resized_crop_flip" else None
        for name, shape in self.files.items():
            columns = {**columns, name: decoding.decode(columns[name], shape, crops=crops)}
        if crops is not None and not self.files:
            columns = {**columns, "image": augmentation.crop_and_resize(columns["image"], crops)}
        if self.augment == "crop_flip":
            columns = {**columns, "image": augmentation.crop_and_flip(columns["image"], **draw)}
        return self.prepare(columns)

    def failure(self) -> Exception | None:
        """Why a batch that was made ahead failed, if it is for the user to mend."""
        return getattr(self.storage, "failure", None)
