"""A model that learns at once and takes long to evaluate: `--model slow_model:network`."""

import keras
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

BATCH_S = 0.7


@keras.saving.register_keras_serializable("tests")
class Slow(keras.layers.Layer):
    """Passes on what it gets; outside of training it takes its time for a batch."""

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """The same values."""
        if training:
            return x
        held = tf.data.Dataset.from_tensors(x).apply(sleep(int(BATCH_S * 1e6))).get_single_element()
        return tf.reshape(held, tf.shape(x))


def network(manifest) -> keras.Model:
    """Of images."""
    image = manifest.feature("image")
    inputs = keras.Input(image.shape, dtype=image.dtype, name="image")
    x = Slow()(keras.layers.Flatten()(keras.layers.Rescaling(1 / 16)(inputs)))
    return keras.Model({"image": inputs}, keras.layers.Dense(len(manifest.class_names))(x))
