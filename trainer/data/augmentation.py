"""Data augmentation, as graph operations over whole batches.

The result for an image depends only on the job's seed, the global step and the image's position in
the global batch:

    positions = first + tf.range(count, dtype=tf.int64)
    images = crop_and_flip(images, seed=7, step=step, positions=positions)
"""

import tensorflow as tf

# Keeps these random numbers apart from those of layers
# (`trainer.nn.randomness`), which count up from 0.
_STREAM = -1


def crop_and_flip(
    images: tf.Tensor, *, seed: int, step: int | tf.Tensor, positions: tf.Tensor, pad: int = 4
) -> tf.Tensor:
    """Frames each image with zeros, crops it at random to its size, and mirrors it at random.

    He et al. 2015, arXiv:1512.03385, section 4.2. Half of the images are mirrored.

    Args:
      images: [N, height, width, channels], all but N static.
      seed: Seed of the job.
      step: Global step, an integer scalar.
      positions: Positions of the images in the global batch, int64 [N].
      pad: Width of the frame in pixels; the crop's offset is uniform in 0 to 2 * pad, both down and
        across.

    Returns:
      Images of the same shape and type.
    """
    height, width = images.shape[1:3]
    offsets = 2 * pad + 1
    key = tf.random.fold_in(tf.stack([seed, tf.cast(step, tf.int64)]), _STREAM)
    # Numbers are drawn for the global batch up to the last position. The numbers of a row do not
    # depend on how many rows there are, so that replicas agree on them.
    count = tf.reduce_max(positions) + 1
    draws = tf.random.stateless_uniform([count], key, maxval=2 * offsets**2, dtype=tf.int32)
    draw = tf.gather(draws, positions)[:, tf.newaxis]
    mirrored, down, across = draw % 2 == 1, draw // 2 % offsets, draw // 2 // offsets
    rows = down + tf.range(height)
    columns = across + tf.where(mirrored, tf.range(width - 1, -1, -1), tf.range(width))
    framed = tf.pad(images, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
    return tf.gather(tf.gather(framed, rows, axis=1, batch_dims=1), columns, axis=2, batch_dims=1)
