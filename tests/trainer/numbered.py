"""Datasets whose examples say which they are."""

import dataclasses
import io
import math
import pathlib

import numpy as np
import pyarrow as pa
from PIL import Image

from common.manifest import HEAD_BYTES, Feature, Manifest, Shard, Split
from common.storage.files import crc32c
from components.convert.hashes import content_hashes
from components.convert.records import Field, Layout

SHAPE = (2, 3, 1)


def dataset(
    directory: pathlib.Path,
    examples: int,
    *,
    shards: int = 3,
    shape: tuple[int, int, int] = SHAPE,
    files: list[bytes] | None = None,
    classes: int | None = None,
) -> Manifest:
    """Writes a training split, and a test split of the same files; the image of example i begins with the bytes of i.

    Args:
      directory: New.
      examples: How many.
      shards: How many.
      shape: That a model gets.
      files: Image files in place of such images.
      classes: Example i has label i modulo that; without it label i.
    """
    directory.mkdir()
    size = math.prod(shape)
    longest = Field(name="image", kind="string", num_bytes=max(map(len, files))) if files else None
    image = longest or Field(name="image", kind="bytes", num_bytes=size)
    layout = Layout([image, Field(name="label", kind="int64", num_bytes=3)])
    written = []
    for i, rows in enumerate(np.array_split(np.arange(examples), shards)):
        images = np.zeros((len(rows), size), np.uint8)
        images[:, :4] = rows.astype("<u4").view(np.uint8).reshape(-1, 4)
        column = (
            pa.array([files[row] for row in rows], pa.large_binary())
            if files
            else images.reshape(-1, *shape)
        )
        records, ends = layout.encode({"image": column, "label": rows % (classes or examples)})
        content, index = records.tobytes(), np.concatenate([[0], ends]).astype("<i8").tobytes()
        shard = Shard(
            file=f"train-{i:05d}-of-{shards:05d}.tfrecord",
            examples=len(rows),
            bytes=len(content),
            crc32c=crc32c(content),
            head_crc32c=crc32c(content[:HEAD_BYTES]),
            hashes=f"train-{i:05d}-of-{shards:05d}.hashes",
            hashes_crc32c=crc32c(hashes := content_hashes(len(rows), {"image": column}).tobytes()),
        )
        (directory / shard.hashes).write_bytes(hashes)
        (directory / shard.file).write_bytes(content)
        if files:
            name = shard.file.replace("tfrecord", "index")
            shard = dataclasses.replace(shard, index=name, index_crc32c=crc32c(index))
            (directory / name).write_bytes(index)
        written.append(shard)
    split = Split(examples=examples, class_histogram=(examples,), shards=tuple(written))
    encoding = "image" if files else None
    image = Feature(
        name="image", dtype="uint8", shape=shape, encoding=encoding, value_range=(0.0, 255.0)
    )
    label = Feature(name="label", dtype="int64", value_range=(0.0, (classes or examples) - 1.0))
    manifest = Manifest(
        name="numbered",
        origin="made up",
        features=tuple(
            dataclasses.replace(
                f, offset=layout.offsets.get(f.name), num_bytes=layout.widths.get(f.name)
            )
            for f in (image, label)
        ),
        label="label",
        class_names=tuple(map(str, range(classes or 1))),
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


def network(manifest: Manifest):
    """A model that costs next to nothing: `--model numbered:network`."""
    import keras

    image = manifest.feature("image")
    inputs = keras.Input(image.shape, dtype=image.dtype, name="image")
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.Rescaling(1 / 255)(inputs))
    hidden = keras.layers.Dense(8)(pooled)
    return keras.Model({"image": inputs}, keras.layers.Dense(len(manifest.class_names))(hidden))


def picture(height: int, width: int, kind: str = "PNG", seed: int = 0) -> bytes:
    """A smooth image file in colour."""
    corners = np.random.default_rng(seed).integers(0, 256, (3, 3, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(corners).resize((width, height), Image.Resampling.BICUBIC).save(
        file, kind, quality=95
    )
    return file.getvalue()


def damage(path: pathlib.Path, position: int) -> None:
    """Flips a bit of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
