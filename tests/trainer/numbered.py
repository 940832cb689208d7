"""Datasets whose examples say which they are."""

import io
import math
import pathlib

import numpy as np
import pyarrow as pa
from PIL import Image

from common.manifest import Feature, Manifest, Split
from components.convert.hashes import content_hashes
from components.convert.records import Field, Layout
from components.convert.shards import ShardWriter
from trainer.data.placement import Choice, provide_files
from trainer.data.reader import open_reader

SHAPE = (2, 3, 1)


def dataset(
    directory,
    examples,
    *,
    shards=3,
    shape=SHAPE,
    files=None,
    classes=None,
):
    """Writes a training split, and a test split of the same files.

    The image of example i begins with the bytes of i.

    Args:
      directory: New.
      examples: How many.
      shards: How many.
      shape: That a model gets.
      files: Image files in place of such images.
      classes: Example i has label i modulo that; without it label i.
    """
    directory.mkdir()
    classes = classes or examples
    kind, size = ("string", max(map(len, files))) if files else ("bytes", math.prod(shape))
    fields = [Field(name="image", kind=kind, num_bytes=size)]
    layout = Layout([*fields, Field(name="label", kind="int64", num_bytes=3)])
    written = []
    for i, rows in enumerate(np.array_split(np.arange(examples), shards)):
        if files:
            images = pa.array([files[row] for row in rows], pa.large_binary())
        else:
            images = np.zeros((len(rows), size), np.uint8)
            images[:, :4] = rows.astype("<u4").view(np.uint8).reshape(-1, 4)
            images = images.reshape(-1, *shape)
        writer = ShardWriter(f"{directory}/train-{i:05d}-of-{shards:05d}", layout)
        hashes = content_hashes(len(rows), {"image": images})
        writer.append({"image": images, "label": rows % classes}, hashes)
        written.append(writer.close())
    split = Split(examples=examples, class_histogram=(examples,), shards=tuple(written))

    def feature(name, **options):
        place = {"offset": layout.offsets.get(name), "num_bytes": layout.widths.get(name)}
        return Feature(name=name, **place, **options)

    image = {"dtype": "uint8", "shape": shape, "encoding": "image" if files else None}
    manifest = Manifest(
        name="numbered",
        origin="made up",
        features=(
            feature("image", value_range=(0.0, 255.0), **image),
            feature("label", dtype="int64", value_range=(0.0, classes - 1.0)),
        ),
        label="label",
        class_names=tuple(map(str, range(classes))),
        record_bytes=layout.record_bytes,
        splits={
            "train": split,
            "validation": Split(examples=0, class_histogram=(0,), shards=()),
            "test": split,
        },
        arguments={},
    )
    manifest.save(directory)
    return manifest


def reader_of(manifest, directory, mode, batch, **options):
    """Opens the training split of a dataset here."""
    options = {"seed": 5, "prepare": dict, **options}
    place = Choice(str(directory), mode, "", None)
    return open_reader(place, manifest, global_batch=batch, **options)


def provided(manifest, directory, cache, *alive):
    """Returns where training reads the files of a dataset, copied unless `cache` is None."""
    choice = Choice(str(directory), "mapped", "", cache and str(cache))
    return pathlib.Path(provide_files(choice, manifest, *alive).data_dir)


def network(manifest):
    """A model that costs next to nothing: `--model numbered:network`."""
    import keras

    image = manifest.feature("image")
    inputs = keras.Input(image.shape, dtype=image.dtype, name="image")
    x = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(inputs))
    return keras.Model({"image": inputs}, keras.layers.Dense(len(manifest.class_names))(x))


def picture(height, width, kind="PNG", seed=0):
    """A smooth image file in colour."""
    corners = np.random.default_rng(seed).integers(0, 256, (3, 3, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(corners).resize((width, height), Image.Resampling.BICUBIC).save(
        file, kind, quality=95
    )
    return file.getvalue()


def damage(path, position):
    """Flips a bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
