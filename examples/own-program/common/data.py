"""The digits that scikit-learn carries."""

import sklearn.datasets
import tensorflow as tf


def dataset(batch: int) -> tf.data.Dataset:
    """Returns batches of images, float32 [batch, 64], and labels, int64 [batch], for ever."""
    digits = sklearn.datasets.load_digits()
    images = (digits.data / 16).astype("float32")
    return tf.data.Dataset.from_tensor_slices((images, digits.target)).repeat().batch(batch)
