"""A contestant: the usual loop over `tf.train.Example`, all images in one file.

`python -m tests.bench.example_loop IMAGES.npy LABELS.npy DIRECTORY`
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import tensorflow as tf

from tests.bench.serve import serve


def main(images: str, labels: str, directory: str) -> None:
    """Writes a new file in every lap."""
    pixels, classes, path = np.load(images), np.load(labels), pathlib.Path(directory) / "usual.tfrecord"

    def lap() -> float:
        path.unlink(missing_ok=True)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for image, label in zip(pixels, classes, strict=True):
                feature = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        return len(classes)

    serve(lap)


if __name__ == "__main__":
    main(*sys.argv[1:])
