"""Columns of a batch from stored records, and pixels from image files, as graph operations."""

import math
from collections.abc import Sequence

import tensorflow as tf

from common.manifest import Feature, Manifest

Columns = dict[str, tf.Tensor]
_IMAGES_AT_ONCE = 8


def image_files(manifest: Manifest) -> dict[str, tuple[int, ...]]:
    """Returns the features that are stored as image files, and the shape that a model gets of each."""
    return {f.name: f.shape for f in manifest.features if f.encoding == "image"}


def decode(records: tf.Tensor, manifest: Manifest) -> Columns:
    """Returns columns of records of one length, framing included, uint8 [N, record_bytes]: [N, *shape] by feature."""
    return {f.name: _decode(records[:, f.offset : f.offset + f.num_bytes], f) for f in manifest.features}


def parse(examples: tf.Tensor, manifest: Manifest) -> Columns:
    """Returns columns of serialised Examples [N]: [N, *shape] by feature, and of image files strings [N]."""
    raw = {f.name: f.shape for f in manifest.features if f.dtype == "uint8" and f.encoding is None}
    columns = tf.io.parse_example(
        examples,
        {
            f.name: tf.io.FixedLenFeature((), tf.string)
            if f.dtype == "uint8"
            else tf.io.FixedLenFeature(f.shape, f.dtype)
            for f in manifest.features
        },
    )
    pixels = {name: tf.io.decode_raw(columns[name], tf.uint8) for name in raw}
    return {**columns, **{name: tf.reshape(values, [-1, *raw[name]]) for name, values in pixels.items()}}


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


@tf.function(reduce_retracing=True)  # eagerly it would be one image after the other
def decode_images(files: tf.Tensor, shape: Sequence[int], *, accurate: bool = False) -> tf.Tensor:
    """Returns pixels of image files (PNG, JPEG, of any size).

    Of each, the largest central part of the wanted proportions is resized (bilinear, antialiased): so the short side is
    resized and the long side cut.

    Args:
      files: [N], their contents.
      shape: Height, width and channels of the result.
      accurate: Whether JPEG files are decoded as exactly as Pillow does, and not as fast as can be.

    Returns:
      uint8 [N, *shape].
    """
    height, width, channels = shape

    def one(file: tf.Tensor) -> tf.Tensor:
        if accurate:  # the operation takes PNG files too
            image = tf.io.decode_jpeg(file, channels, dct_method="INTEGER_ACCURATE")
        else:
            image = tf.io.decode_image(file, channels, expand_animations=False)
        size = tf.shape(image)[:2]
        scale = tf.reduce_min(tf.cast(size, tf.float32) / [height, width])
        part = tf.cast(tf.maximum(tf.round(scale * [height, width]), 1), tf.int32)
        start = (size - part) // 2
        image.set_shape([None, None, channels])
        image = tf.slice(image, [*tf.unstack(start), 0], [*tf.unstack(part), channels])
        image = tf.image.resize(image, (height, width), antialias=True)
        return tf.cast(tf.round(tf.clip_by_value(image, 0, 255)), tf.uint8)

    return tf.map_fn(
        one,
        files,
        parallel_iterations=_IMAGES_AT_ONCE,
        fn_output_signature=tf.TensorSpec(shape, tf.uint8),
    )
