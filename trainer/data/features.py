"""Columns of a batch from stored records, and pixels from image files, as graph operations."""

import math
from collections.abc import Sequence

import tensorflow as tf

from common.manifest import Manifest

Columns = dict[str, tf.Tensor]
_IMAGES_AT_ONCE = 8


def decode(records: tf.Tensor, manifest: Manifest) -> Columns:
    """Returns the columns of records of one length.

    Args:
      records: Whole records, framing included, uint8 [N, record_bytes].
      manifest: Manifest of the dataset, with an offset for every feature.

    Returns:
      [N, *shape] for each feature, by name.
    """
    columns = {}
    for f in manifest.features:
        assert f.offset and f.num_bytes
        width = f.num_bytes // math.prod(f.shape)
        raw = tf.reshape(records[:, f.offset : f.offset + f.num_bytes], [-1, *f.shape, width])
        if f.dtype == "uint8":
            columns[f.name] = tf.squeeze(raw, -1)
        elif f.dtype == "float32":
            columns[f.name] = tf.bitcast(raw, tf.float32)
        else:  # A varint of fixed width has seven bits in each byte, the lowest bits first.
            digits = tf.cast(tf.bitwise.bitwise_and(raw, 127), tf.int64)
            shifts = 7 * tf.range(width, dtype=tf.int64)
            columns[f.name] = tf.reduce_sum(tf.bitwise.left_shift(digits, shifts), axis=-1)
    return columns


def parse(examples: tf.Tensor, manifest: Manifest) -> Columns:
    """Returns the columns of serialised Examples.

    Args:
      examples: Strings [N].
      manifest: Manifest of the dataset.

    Returns:
      [N, *shape] for each feature, by name; for image files their contents, strings [N].
    """
    stored = {
        f.name: ((), "string") if f.dtype == "uint8" else (f.shape, f.dtype)
        for f in manifest.features
    }
    columns = tf.io.parse_example(
        examples, {name: tf.io.FixedLenFeature(*form) for name, form in stored.items()}
    )
    for f in manifest.features:
        if f.dtype == "uint8" and f.encoding is None:
            columns[f.name] = tf.reshape(
                tf.io.decode_raw(columns[f.name], tf.uint8), [-1, *f.shape]
            )
    return columns


def decode_files(columns: Columns, manifest: Manifest) -> Columns:
    """Decodes the image files of a batch.

    Args:
      columns: Columns [N, ...] by name; those of image files are strings [N].
      manifest: Manifest of the dataset, which says which features are image files.

    Returns:
      All columns, with pixels, uint8 [N, *shape], in place of image files.

    Raises:
      tf.errors.InvalidArgumentError: When it runs, if a file cannot be decoded.
    """
    files = {
        f.name: decode_images(columns[f.name], f.shape)
        for f in manifest.features
        if f.encoding == "image"
    }
    return {**columns, **files}


@tf.function(reduce_retracing=True)  # Eagerly, `map_fn` would decode one image at a time.
def decode_images(files: tf.Tensor, shape: Sequence[int], *, accurate: bool = False) -> tf.Tensor:
    """Returns the pixels of image files (PNG or JPEG, of any size).

    The largest central part of each image that has the result's proportions is resized (bilinear,
    antialiased).

    Args:
      files: Contents of the files, strings [N].
      shape: Height, width and channels of the result.
      accurate: Decodes JPEG files exactly as Pillow does, in place of as fast as possible.

    Returns:
      uint8 [N, *shape].

    Raises:
      tf.errors.InvalidArgumentError: When it runs, if a file cannot be decoded.
    """
    height, width, channels = shape

    def one(file: tf.Tensor) -> tf.Tensor:
        if accurate:  # This operation decodes PNG files too.
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
