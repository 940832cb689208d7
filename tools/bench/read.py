"""Reading images of CIFAR-10's size in batches of 128: our two ways against what most programs do.

The usual ways are at their best: records in the order of the file, a shuffle buffer of 10,000,
parallel maps, prefetching.
"""

import pathlib

import tensorflow as tf

from common.manifest import Manifest
from tools.bench import data
from tools.bench.race import Contestants
from tools.bench.usual import example
from trainer.data import records
from trainer.data.placement import budget, choose, provide_files
from trainer.data.reader import open_reader

BATCH, STEPS = 128, 150
_AHEAD = tf.data.AUTOTUNE


def reader_of(directory, wish, **options):
    """Opens a reader of ours."""
    manifest = Manifest.load(directory)
    memory = budget(1, on_gpus=False)
    choice = choose(manifest, data_dir=directory, budget_bytes=memory, wish=wish)
    return open_reader(provide_files(choice, manifest), manifest, seed=0, **options)


def _pixel(columns):
    """Something that needs the whole batch."""
    return tf.cast(columns["image"][0, 0, 0, 0], tf.int32) + tf.cast(columns["label"][0], tf.int32)


def _ours(mode, augment="none"):
    reader = reader_of(
        data.dataset("cifar10"),
        mode,
        global_batch=BATCH,
        prepare=lambda columns: columns,
        augment=augment,
    )
    if reader.ahead:
        return _drain(reader.dataset(0, tf.distribute.InputContext()))
    loaded = reader.load()

    @tf.function
    def steps():
        total = tf.constant(0)
        for i in tf.range(tf.constant(STEPS, tf.int64)):
            total += _pixel(reader.batch(loaded, i, 0, BATCH))
        return total

    return lambda: steps() is not None and STEPS * BATCH


def _drain(dataset):
    iterator = iter(dataset)

    @tf.function
    def steps(iterator):
        total = tf.constant(0)
        for _ in tf.range(STEPS):
            total += _pixel(next(iterator))
        return total

    return lambda: steps(iterator) is not None and STEPS * BATCH


def _usual(examples, change):
    shuffled = examples.shuffle(10_000).repeat()
    return _drain(shuffled.map(change, _AHEAD).batch(BATCH).prefetch(_AHEAD))


def plain():
    """Against PNG images in `tf.train.Example`, parsed and decoded one by one.

    TensorFlow Datasets stores them so.
    """
    directory = data.dataset("cifar10")
    path = str(pathlib.Path(directory) / "png.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for columns in records.batches(Manifest.load(directory), directory, "test", 1000):
            pairs = zip(columns["image"].numpy(), columns["label"].numpy(), strict=True)
            for image, label in pairs:
                writer.write(example(tf.io.encode_png(image).numpy(), label))
    kinds = {"image": tf.string, "label": tf.int64}
    form = {name: tf.io.FixedLenFeature([], kind) for name, kind in kinds.items()}

    def decode(record):
        example = tf.io.parse_single_example(record, form)
        image = tf.ensure_shape(tf.io.decode_png(example["image"], 3), [32, 32, 3])
        return {"image": image, "label": example["label"]}

    laps = {f"reader, {mode}": _ours(mode) for mode in ("resident", "mapped")}
    return laps | {"PNG, example by example": _usual(tf.data.TFRecordDataset(path), decode)}


def augmented():
    """Pad, crop and mirror: against the same image by image, of pixels that lie in memory."""
    directory = data.dataset("cifar10")

    def change(example):
        padded = tf.image.resize_with_crop_or_pad(example["image"], 40, 40)
        image = tf.image.random_crop(padded, [32, 32, 3])
        return {**example, "image": tf.image.random_flip_left_right(image)}

    columns = records.load(Manifest.load(directory), directory, "train")
    usual = _usual(tf.data.Dataset.from_tensor_slices(columns), change)
    modes = ("resident", "mapped")
    laps = {f"reader with crop_flip, {mode}": _ours(mode, "crop_flip") for mode in modes}
    return laps | {"image by image, in memory": usual}


RACES: dict[str, Contestants] = {"read": plain, "read-augmented": augmented}
