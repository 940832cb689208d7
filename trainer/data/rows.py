"""Rows of a table from TFRecord files whose records differ in length.

columns = parse(["data/train-00000-of-00001.tfrecord"], manifest)
columns["fare"]  # float32 [examples]
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from trainer.base.manifest import Manifest


def parse(files: Sequence[str], manifest: Manifest) -> dict[str, tf.Tensor]:
    """All rows of the files, in order, read by graph operations on whichever device runs them.

    Returns:
      By feature name, [examples] in the feature's dtype.
    """
    split = tf.data.TFRecordDataset(list(files)).batch(2**40).get_single_element()
    return parse_examples(split, manifest)


def parse_examples(examples: tf.Tensor, manifest: Manifest) -> dict[str, tf.Tensor]:
    """Columns of serialised Examples [N], by feature name, [N, *shape]; of an image that is stored as a file, strings [N]."""
    stored = {f.name: ((), "string") if f.encoding == "image" else (f.shape, f.dtype) for f in manifest.features}
    return tf.io.parse_example(examples, {name: tf.io.FixedLenFeature(*form) for name, form in stored.items()})
