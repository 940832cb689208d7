"""Writing TFRecord: our writer against the usual loop over `tf.train.Example`."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from components.convert import tfrecord

EXAMPLES, SHAPE = 20_000, (28, 28, 1)


def contestants() -> Mapping[str, Callable[[], float]]:
    """Images of MNIST's size with random pixels, in one file; SHA-256 of the file included in ours."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (EXAMPLES, *SHAPE), np.uint8)
    labels = random.integers(0, 10, EXAMPLES)
    path = pathlib.Path(tempfile.mkdtemp()) / "bench.tfrecord"
    layout = tfrecord.Layout(
        [
            tfrecord.Field(name="image", kind="bytes", num_bytes=int(np.prod(SHAPE))),
            tfrecord.Field(name="label", kind="int64", num_bytes=1),
        ]
    )

    def ours() -> float:
        tfrecord.write(path, layout, {"image": images, "label": labels}, rows=np.arange(EXAMPLES))
        return EXAMPLES

    def usual() -> float:
        with tf.io.TFRecordWriter(os.fspath(path)) as writer:
            for image, label in zip(images, labels, strict=True):
                feature = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
        return EXAMPLES

    return {"our writer": ours, "tf.train.Example loop": usual}
