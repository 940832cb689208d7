"""Reading images of CIFAR-10's size in batches of 128: our two ways against what most programs do.

The usual ways are at their best: records in the order of the file, a shuffle buffer of 10,000,
parallel maps, prefetching.
"""

import functools
import pathlib
from collections.abc import Callable, Mapping

import tensorflow as tf

from common.manifest import Manifest
from tests.bench import data
from tests.bench.usual import example
from trainer.data import records
from trainer.data.placement import budget, choose, provide_files
from trainer.data.reader import Reader, open_reader

BATCH, STEPS = 128, 150
_AHEAD = tf.data.AUTOTUNE


def _dataset() -> tuple[Manifest, str]:
    directory = data.dataset("cifar10")
    return Manifest.load(directory), directory


def _reader(mode: str, augment: str = "none") -> Reader:
    manifest, directory = _dataset()
    choice = choose(manifest, data_dir=directory, budget_bytes=budget(1, on_gpus=False), wish=mode)
    return open_reader(
        provide_files(choice, manifest),
        manifest,
        global_batch=BATCH,
        seed=0,
        prepare=lambda columns: columns,
        augment=augment,
    )


def _pixel(columns: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Something that needs the whole batch."""
    return tf.cast(columns["image"][0, 0, 0, 0], tf.int32) + tf.cast(columns["label"][0], tf.int32)


def _ours(mode: str, augment: str = "none") -> Callable[[], float]:
    reader = _reader(mode, augment)
    if reader.ahead:
        return _drain(reader.dataset(0, tf.distribute.InputContext()))
    loaded = reader.load()

    @tf.function
    def steps() -> tf.Tensor:
        total = tf.constant(0)
        for i in tf.range(tf.constant(STEPS, tf.int64)):
            total += _pixel(reader.batch(loaded, i, 0, BATCH))
        return total

    return lambda: steps() is not None and STEPS * BATCH


def _drain(dataset: tf.data.Dataset) -> Callable[[], float]:
    iterator = iter(dataset)

    @tf.function
    def steps(iterator: tf.data.Iterator) -> tf.Tensor:
        total = tf.constant(0)
        for _ in tf.range(STEPS):
            total += _pixel(next(iterator))
        return total

    return lambda: steps(iterator) is not None and STEPS * BATCH


def _png_file() -> tuple[str, dict]:
    manifest, directory = _dataset()
    path = str(pathlib.Path(directory) / "png.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for columns in records.batches(manifest, directory, "test", 1000):
            for image, label in zip(
                columns["image"].numpy(), columns["label"].numpy(), strict=True
            ):
                writer.write(example(tf.io.encode_png(image).numpy(), label))
    return path, {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }


def plain() -> Mapping[str, Callable[[], float]]:
    """Against PNG images in `tf.train.Example`, parsed and decoded one by one, which is how TensorFlow Datasets stores them."""
    path, form = _png_file()

    def decode(record: tf.Tensor) -> dict[str, tf.Tensor]:
        example = tf.io.parse_single_example(record, form)
        return {
            "image": tf.ensure_shape(tf.io.decode_png(example["image"], 3), [32, 32, 3]),
            "label": example["label"],
        }

    usual = (
        tf.data.TFRecordDataset(path)
        .shuffle(10_000)
        .repeat()
        .map(decode, _AHEAD)
        .batch(BATCH)
        .prefetch(_AHEAD)
    )
    return {f"reader, {mode}": _ours(mode) for mode in ("resident", "mapped")} | {
        "PNG, example by example": _drain(usual)
    }


def augmented() -> Mapping[str, Callable[[], float]]:
    """Pad, crop and mirror: against the same image by image, of pixels that lie in memory."""
    manifest, directory = _dataset()

    def change(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        image = tf.image.random_crop(
            tf.image.resize_with_crop_or_pad(example["image"], 40, 40), [32, 32, 3]
        )
        return {**example, "image": tf.image.random_flip_left_right(image)}

    slices = tf.data.Dataset.from_tensor_slices(records.load(manifest, directory, "train"))
    usual = slices.shuffle(10_000).repeat().map(change, _AHEAD).batch(BATCH).prefetch(_AHEAD)
    return {
        f"reader with crop_flip, {mode}": _ours(mode, "crop_flip")
        for mode in ("resident", "mapped")
    } | {"image by image, in memory": _drain(usual)}


def opening() -> Mapping[str, Callable[[], float]]:
    """The first batch at step 1,000,000, so many a second: against `skip` over 390 batches, an epoch, of PNG images."""
    path, form = _png_file()

    def ours(mode: str) -> float:
        reader = _reader(mode)
        _pixel(reader.batch(reader.load(), tf.constant(1_000_000, tf.int64), 0, BATCH)).numpy()
        return 1

    def usual() -> float:
        batches = tf.data.TFRecordDataset(path).shuffle(10_000).repeat().batch(BATCH).skip(390)
        next(iter(batches.map(lambda batch: tf.io.parse_example(batch, form))))
        return 1

    return {
        "open at step 1,000,000, mapped": functools.partial(ours, "mapped"),
        "skip an epoch": usual,
    }
