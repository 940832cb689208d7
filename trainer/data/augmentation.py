"""Data augmentation, as graph operations over whole batches.

What becomes of an image depends on the job's seed, the global step and the image's position in the global batch alone:

    images = crop_and_flip(images, seed=7, step=step, positions=first + tf.range(count, dtype=tf.int64))
"""

import math

import tensorflow as tf

# Tells these random numbers from those of layers (`trainer.nn.randomness`), which count up from 0.
_STREAM = -1


def crop_and_flip(
    images: tf.Tensor, *, seed: int, step: int | tf.Tensor, positions: tf.Tensor, pad: int = 4
) -> tf.Tensor:
    """Crops each image at random out of itself framed with zeros, and mirrors every other one (He et al. 2015, 4.2).

    Args:
      images: [N, height, width, channels], all but N static.
      seed: Of the job.
      step: Global step, an integer scalar.
      positions: [N] int64.
      pad: Pixels of the frame: the crop's offset is uniform in 0 to 2 * pad, down and across.
    """
    height, width, channels = images.shape[1:]
    offsets = 2 * pad + 1
    # Drawn for the whole batch up to the last position: the numbers of a row do not depend on how many rows there are.
    count = tf.reduce_max(positions) + 1
    draws = tf.random.stateless_uniform([count], _key(seed, step), maxval=2 * offsets**2, dtype=tf.int32)
    draw = tf.gather(draws, positions)[:, tf.newaxis]
    mirrored, down, across = draw % 2 == 1, draw // 2 % offsets - pad, draw // 2 // offsets - pad
    rows = down + tf.range(height)
    columns = across + tf.where(mirrored, tf.range(width - 1, -1, -1), tf.range(width))
    # One gather of pixels; those of the frame all come from one black pixel behind the last image.
    pixels = tf.concat([tf.reshape(images, [-1, channels]), tf.zeros([1, channels], images.dtype)], 0)
    count = tf.shape(images)[0]
    within = ((rows >= 0) & (rows < height))[:, :, tf.newaxis] & ((columns >= 0) & (columns < width))[:, tf.newaxis]
    rows += tf.range(count)[:, tf.newaxis] * height
    indices = rows[:, :, tf.newaxis] * width + columns[:, tf.newaxis]
    return tf.gather(pixels, tf.where(within, indices, count * height * width))


def draw_crops(*, seed: int, step: int | tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Draws a part of each image to be resized, and whether to mirror it (Szegedy et al. 2015, arXiv:1409.4842, 6).

    Returns:
      [N, 5] in [0, 1): area, proportions, place down and across, mirrored if less than a half.
    """
    draws = tf.random.stateless_uniform([tf.reduce_max(positions) + 1, 5], _key(seed, step))
    return tf.gather(draws, positions)


def crop_of(size: tf.Tensor, draws: tf.Tensor) -> tf.Tensor:
    """The part of an image that draws mean: 8 to 100 % of its area, proportions 3:4 to 4:3, as far as it fits in.

    Args:
      size: [..., 2] int32, height and width of the image.
      draws: [..., 5] of `draw_crops`.

    Returns:
      [..., 4] int32: top, left, height, width.
    """
    sides = tf.cast(size, tf.float32)
    area = tf.reduce_prod(sides, axis=-1) * (0.08 + 0.92 * draws[..., 0])
    ratio = tf.exp(math.log(4 / 3) * (2 * draws[..., 1] - 1))
    part = tf.stack([tf.sqrt(area / ratio), tf.sqrt(area * ratio)], axis=-1)
    part = tf.maximum(tf.cast(tf.round(tf.minimum(part, sides)), tf.int32), 1)
    place = tf.cast(tf.cast(size - part + 1, tf.float32) * draws[..., 2:4], tf.int32)
    return tf.concat([tf.minimum(place, size - part), part], axis=-1)


def crop_and_resize(images: tf.Tensor, crops: tf.Tensor) -> tf.Tensor:
    """Images [N, height, width, channels] of one size as `draw_crops` says, bilinear, in their own size and dtype."""
    size = tf.shape(images)[1:3]
    parts = tf.cast(crop_of(tf.broadcast_to(size, [tf.shape(images)[0], 2]), crops), tf.float32)
    start, length, last = parts[:, :2], parts[:, 2:], tf.cast(size - 1, tf.float32)
    first, end = (tf.math.divide_no_nan(place, last) for place in (start, start + length - 1))
    mirrored = crops[:, 4] < 0.5
    left, right = tf.where(mirrored, end[:, 1], first[:, 1]), tf.where(mirrored, first[:, 1], end[:, 1])
    boxes = tf.stack([first[:, 0], left, end[:, 0], right], axis=1)
    resized = tf.image.crop_and_resize(images, boxes, tf.range(tf.shape(images)[0]), images.shape[1:3])
    return tf.cast(tf.round(resized), images.dtype)


def _key(seed: int, step: int | tf.Tensor) -> tf.Tensor:
    return tf.random.fold_in(tf.stack([seed, tf.cast(step, tf.int64)]), _STREAM)
