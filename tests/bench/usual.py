"""The usual loop over `tf.train.Example`, all images in one file."""

import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf


def example(image: bytes, label: int) -> bytes:
    """An image as a serialized `tf.train.Example`."""
    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def writer(images: np.ndarray, labels: np.ndarray, root: pathlib.Path) -> Callable[[], float]:
    """A lap that writes a new file."""
    path = root / "usual.tfrecord"

    def lap() -> float:
        path.unlink(missing_ok=True)
        with tf.io.TFRecordWriter(str(path)) as file:
            for image, label in zip(images, labels, strict=True):
                file.write(example(image.tobytes(), label))
        return len(labels)

    return lap
