"""Data augmentation, as graph operations over whole batches.

What becomes of an image depends on the job's seed, the global step and the image's position in the global batch alone:

    images = crop_and_flip(images, seed=7, step=step, positions=first + tf.range(count, dtype=tf.int64))
"""

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
    height, width = images.shape[1:3]
    offsets = 2 * pad + 1
    key = tf.random.fold_in(tf.stack([seed, tf.cast(step, tf.int64)]), _STREAM)
    # Drawn for the whole batch up to the last position: the numbers of a row do not depend on how
    # many rows there are.
    count = tf.reduce_max(positions) + 1
    draws = tf.random.stateless_uniform([count], key, maxval=2 * offsets**2, dtype=tf.int32)
    draw = tf.gather(draws, positions)[:, tf.newaxis]
    mirrored, down, across = draw % 2 == 1, draw // 2 % offsets, draw // 2 // offsets
    rows = down + tf.range(height)
    columns = across + tf.where(mirrored, tf.range(width - 1, -1, -1), tf.range(width))
    framed = tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
    return tf.gather(tf.gather(framed, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)
