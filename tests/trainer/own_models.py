"""Models as users write them, one of each kind: `--model own_models:sequential`.

They take the digits' images, [8, 8, 1].
"""

import keras
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

L = keras.layers


def _image(manifest):
    feature = manifest.feature("image")
    return keras.Input(feature.shape, dtype=feature.dtype, name="image")


def _flat(x):
    return L.Flatten()(L.Rescaling(1 / 16)(x))


@keras.saving.register_keras_serializable("tests")
class Jitter(L.Layer):
    """Random numbers of its own, from a generator of its own and from the process's."""

    def __init__(self, **options):
        super().__init__(**options)
        self.generator = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        if not training:
            return x
        own = keras.random.normal(keras.ops.shape(x), seed=self.generator)
        return x + 0.1 * own + 0.1 * keras.random.normal(keras.ops.shape(x))


def functional(manifest):
    """Layers with random states among the weights, one in two places, and one of a sequence."""
    inputs, shared = _image(manifest), L.Dense(24, name="shared")
    x = L.Dense(24, activation="relu")(L.Dropout(0.2)(_flat(inputs)))
    x = Jitter()(shared(L.Dropout(0.3)(shared(x))))
    rows = L.Bidirectional(L.LSTM(8, dropout=0.2))(L.Reshape((8, 8))(L.Rescaling(1 / 16)(inputs)))
    return keras.Model([inputs], L.Dense(10)(L.Concatenate()([x, rows])))


def sequential(manifest):
    """Not built: it has no input."""
    layers = [L.Rescaling(1 / 16), L.Flatten(), L.Dropout(0.2), L.Dense(24, "relu"), L.Dropout(0.2)]
    return keras.Sequential([*layers, L.Dense(10)])


class Subclassed(keras.Model):
    """Takes the image, and has layers in a list."""

    def __init__(self):
        super().__init__()
        self.scale, self.flatten, self.dropout = L.Rescaling(1 / 16), L.Flatten(), L.Dropout(0.2)
        self.hidden = [L.Dense(24, "relu"), L.Dense(16, "relu")]
        self.head = L.Dense(10)

    def call(self, image, training=False):
        x = self.flatten(self.scale(image))
        for layer in self.hidden:
            x = self.dropout(layer(x), training=training)
        return self.head(x)


def subclassed(manifest):
    return Subclassed()


def batch_norm(manifest):
    """Keras' own, not told to sum over the replicas, and weights that follow from themselves."""
    inputs = _image(manifest)
    x = L.BatchNormalization()(L.Conv2D(4, 3)(L.Rescaling(1 / 16)(inputs)))
    x = L.SpectralNormalization(L.Dense(24, activation="relu"))(L.Flatten()(x))
    return keras.Model({"image": inputs}, L.Dense(10)(x))


@keras.saving.register_keras_serializable("tests")
class Slow(L.Layer):
    """Passes on what it gets; outside of training it takes 0.7 s for a batch."""

    def call(self, x, training=False):
        if training:
            return x
        held = tf.data.Dataset.from_tensors(x).apply(sleep(700_000)).get_single_element()
        return tf.reshape(held, tf.shape(x))


def slow(manifest):
    """Learns at once, and takes long to evaluate."""
    inputs = _image(manifest)
    return keras.Model({"image": inputs}, L.Dense(10)(Slow()(_flat(inputs))))
