"""Whole image files (PNG, JPEG, of any size) to pixels of one size, as graph operations."""

from collections.abc import Sequence

import tensorflow as tf

from trainer.data import augmentation

_AT_ONCE = 8


@tf.function(reduce_retracing=True)  # eagerly it would be one image after the other
def decode(
    files: tf.Tensor, shape: Sequence[int], *, crops: tf.Tensor | None = None, accurate: bool = False
) -> tf.Tensor:
    """Pixels of images.

    Of each, a part is resized (bilinear, antialiased): the crop, if there is one, else the largest central part of the
    proportions asked for, which is the short side resized and the long side cut.

    Args:
      files: [N], their contents.
      shape: Height, width and channels of the result.
      crops: [N, 5] of `augmentation.draw_crops`.
      accurate: Whether JPEG files are decoded as exactly as Pillow does, and not as fast as can be.

    Returns:
      uint8 [N, *shape].
    """
    height, width, channels = shape

    def one(file: tf.Tensor, crop: tf.Tensor) -> tf.Tensor:
        if accurate:  # the operation takes PNG files too
            image = tf.io.decode_jpeg(file, channels, dct_method="INTEGER_ACCURATE")
        else:
            image = tf.io.decode_image(file, channels, expand_animations=False)
        size = tf.shape(image)[:2]
        if crops is None:
            fitting = tf.cast(size, tf.float32) / [height, width]
            part = tf.cast(tf.maximum(tf.round(tf.reduce_min(fitting) * [height, width]), 1), tf.int32)
            top, left = tf.unstack((size - part) // 2)
            tall, wide = tf.unstack(part)
        else:
            top, left, tall, wide = tf.unstack(augmentation.crop_of(size, crop))
        image.set_shape([None, None, channels])
        image = tf.image.resize(image[top : top + tall, left : left + wide], (height, width), antialias=True)
        if crops is not None:
            image = tf.cond(crop[4] < 0.5, lambda: tf.reverse(image, [1]), lambda: image)
        return tf.cast(tf.round(tf.clip_by_value(image, 0, 255)), tf.uint8)

    unused = tf.zeros([tf.shape(files)[0], 0])
    return tf.map_fn(
        lambda pair: one(*pair),
        (files, unused if crops is None else crops),
        parallel_iterations=_AT_ONCE,
        fn_output_signature=tf.TensorSpec(shape, tf.uint8),
    )
