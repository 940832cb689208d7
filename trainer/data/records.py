"""The examples of a converted dataset: for training in a random order, for evaluation in their own.

choice = choose(manifest, data_dir="data", budget_bytes=4e9)  # of `trainer.data.placement`
place = locate(choice, manifest, member, alive)  # copies or checks files
reader = open_reader(place, manifest, global_batch=128, seed=0, prepare=build.prepare)
batch = reader.batch(reader.load(), step, first=0, count=128)

for columns in batches(manifest, data_dir, "test", batch_size=512):
    columns["image"]     # [512, height, width, channels]
"""

import concurrent.futures
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator

import tensorflow as tf
from etils import epath

from common.manifest import Feature, Manifest
from common.storage.files import crc32c_of
from trainer.cluster.member import Member
from trainer.data import decoding, local_copy
from trainer.data.order import Order
from trainer.data.placement import Choice
from trainer.data.reader import Reader
from trainer.data.shards import MappedRecords, Shards, damaged, readable
from trainer.data.storage import Columns, Mapped, MappedTensors, Resident, Storage

_TOLD_S, _AT_ONCE = 5.0, 4


def locate(choice: Choice, manifest: Manifest, member: Member, alive: Callable[[], None]) -> Choice:
    """Sees to the files of the training split as this member is to read them: checks them, or copies them.

    Calls `alive` every few seconds while it takes long. Returns the choice, with the directory of the copies if there are any.
    """
    if member.is_chief:
        print(choice, flush=True)
    if member.role == "ps":  # holds variables only
        return choice
    if choice.mode == "resident" or not choice.cache_dir:
        if choice.asynchronous and member.role == "worker":
            verify(manifest, choice.data_dir, "train", alive)  # TensorFlow reads them itself, and checks nothing
        return choice
    told = time.monotonic()

    def progress(done: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TOLD_S:
            told = time.monotonic()
            alive()
            print(f"copying the training files to {choice.cache_dir}: {done / 1e9:.1f} GB so far", flush=True)

    return dataclasses.replace(
        choice, data_dir=local_copy.localize(manifest, choice.data_dir, choice.cache_dir, progress)
    )


def open_reader(
    place: Choice,
    manifest: Manifest,
    *,
    global_batch: int,
    seed: int,
    prepare: Callable[[Columns], Columns],
    augment: str = "none",
) -> Reader:
    """The reader of the training split, at the place that `locate` returned.

    `prepare` is what the model makes of the dataset's columns, of all at once where they are resident and not augmented;
    `augment` is as `--augment` has it, and changes the dataset's own pixels, before `prepare`. A `UserError` names a file that is missing or has another size than it should.
    """
    order, files = Order.of(manifest.split("train"), seed), encoded_images(manifest)
    # What is still to be decoded or augmented cannot be prepared before.
    early, late = (dict, prepare) if files or augment != "none" else (prepare, dict)

    def columns(records: tf.Tensor) -> Columns:
        return early(decode(records, manifest))

    if place.mode == "resident":
        load = _resident_by_tensorflow if place.asynchronous else resident
        storage: Storage = Resident(lambda: early(load(manifest, place.data_dir, "train")))
    elif place.asynchronous:
        shards = Shards(manifest, place.data_dir, "train")
        MappedRecords(shards)  # which looks whether they are the right files
        storage = MappedTensors(shards, columns)
    else:
        storage = Mapped(MappedRecords(Shards(manifest, place.data_dir, "train")), columns, manifest.record_bytes)
    ahead = not place.asynchronous and (place.mode != "resident" or bool(files))
    return Reader(
        storage=storage, order=order, global_batch=global_batch, files=files, prepare=late, augment=augment, ahead=ahead
    )


def encoded_images(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """The features that are image files, and the shape that a model gets."""
    return {f.name: f.shape for f in manifest.features if f.encoding == "image"}


def verify(manifest: Manifest, data_dir: str, split: str, alive: Callable[[], None] = lambda: None) -> None:
    """Checks the CRC-32C of every file of a split; the first that is missing or not as the manifest says is named.

    Calls `alive` after each file.
    """
    for name, crc32c in manifest.split(split).checksums.items():
        path = epath.Path(data_dir) / name
        with readable(path):
            digest = crc32c_of(path)
        if digest != crc32c:
            raise damaged(path)
        alive()


def resident(manifest: Manifest, data_dir: str, split: str) -> Columns:
    """The whole split in memory; each file is read once, and compared with its CRC-32C before it is used.

    By feature name, [examples, *shape] in the feature's dtype; of an image that is stored as a file, strings [examples].
    """
    shards, kind = Shards(manifest, data_dir, split), tf.uint8 if manifest.record_bytes else tf.string
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        contents = pool.map(shards.whole, range(len(shards.paths)))
        return _joined([decode(tf.constant(records, kind), manifest) for records in contents], manifest)


def _resident_by_tensorflow(manifest: Manifest, data_dir: str, split: str) -> Columns:
    """The same by graph operations on whichever device runs them, without a look at checksums."""
    files = [os.path.join(data_dir, shard.file) for shard in manifest.split(split).shards]
    if manifest.record_bytes is None:
        return _parse(tf.data.TFRecordDataset(files).batch(2**40).get_single_element(), manifest)
    contents = (tf.io.decode_raw(tf.io.read_file(file), tf.uint8) for file in files)  # one after the other
    parts = [decode(tf.reshape(content, [-1, manifest.record_bytes]), manifest) for content in contents]
    return _joined(parts, manifest)


def _joined(parts: list[Columns], manifest: Manifest) -> Columns:
    return {f.name: tf.concat([part[f.name] for part in parts], 0) for f in manifest.features}


def batches(
    manifest: Manifest, data_dir: str, split: str, batch_size: int, *, start: int = 0, stop: int | None = None
) -> Iterator[Columns]:
    """The split in its order, or its examples `start` to `stop`, batch by batch in little memory; image files are decoded.

    Files are read through once, and checked as they pass: one that is not as the manifest says is refused at its end at
    the latest. By feature name, [batch_size, *shape] in the feature's dtype; the last batch may be shorter.
    """
    shards, encoded = Shards(manifest, data_dir, split), encoded_images(manifest)
    for checked in shards.in_order(batch_size, start, manifest.split(split).examples if stop is None else stop):
        columns = decode(tf.constant(checked), manifest)
        yield {**columns, **{name: decoding.decode(columns[name], shape) for name, shape in encoded.items()}}


def decode(records: tf.Tensor, manifest: Manifest) -> Columns:
    """Columns of records [N]: whole ones, uint8 [N, record_bytes], or the payloads of such as differ in length."""
    if manifest.record_bytes is None:
        return _parse(records, manifest)
    return {f.name: _decode(records[:, f.offset : f.offset + f.num_bytes], f) for f in manifest.features}


def _parse(examples: tf.Tensor, manifest: Manifest) -> Columns:
    """Columns of serialised Examples [N], by feature name, [N, *shape]; of an image that is stored as a file, strings [N]."""
    stored = {f.name: ((), "string") if f.encoding == "image" else (f.shape, f.dtype) for f in manifest.features}
    return tf.io.parse_example(examples, {name: tf.io.FixedLenFeature(*form) for name, form in stored.items()})


def _decode(raw: tf.Tensor, feature: Feature) -> tf.Tensor:
    """Values [N, *shape] of one feature from its bytes [N, num_bytes]."""
    if feature.dtype == "uint8":
        return tf.reshape(raw, [-1, *feature.shape])
    width = feature.num_bytes // math.prod(feature.shape)
    if feature.shape:
        raw = tf.reshape(raw, [-1, *feature.shape, width])
    if feature.dtype == "float32":
        return tf.bitcast(raw, tf.float32)
    # A varint of fixed width: seven bits a byte, the lowest first.
    digits = tf.cast(tf.bitwise.bitwise_and(raw, 127), tf.int64)
    return tf.reduce_sum(tf.bitwise.left_shift(digits, 7 * tf.range(width, dtype=tf.int64)), axis=-1)
