"""Models as users write them, one of each kind: `--model own_models:sequential`. They take the digits' images, [8, 8, 1]."""

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep

from common.manifest import Manifest

L = keras.layers


def _image(manifest: Manifest) -> keras.KerasTensor:
    feature = manifest.feature("image")
    return keras.Input(feature.shape, dtype=feature.dtype, name="image")


def _flat(x: keras.KerasTensor) -> keras.KerasTensor:
    return L.Flatten()(L.Rescaling(1 / 16)(x))


def functional(manifest: Manifest) -> keras.Model:
    """Several layers with random states among the weights, and one layer in two places."""
    inputs = _image(manifest)
    x, shared = (
        L.Dense(24, activation="relu")(L.Dropout(0.2)(_flat(inputs))),
        L.Dense(24, name="shared"),
    )
    x = L.GaussianNoise(0.1)(shared(L.Dropout(0.3)(shared(x))))
    return keras.Model(inputs, L.Dense(len(manifest.class_names))(x))


def sequential(manifest: Manifest) -> keras.Model:
    """Not built: it has no input."""
    layers = [L.Rescaling(1 / 16), L.Flatten(), L.Dropout(0.2), L.Dense(24, "relu"), L.Dropout(0.2)]
    return keras.Sequential([*layers, L.Dense(len(manifest.class_names))])


class Subclassed(keras.Model):
    """Takes the image, and has layers in a list."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.scale, self.flatten, self.dropout = L.Rescaling(1 / 16), L.Flatten(), L.Dropout(0.2)
        self.hidden = [L.Dense(24, "relu"), L.Dense(16, "relu")]
        self.head = L.Dense(classes)

    def call(self, image, training=False):
        x = self.flatten(self.scale(image))
        for layer in self.hidden:
            x = self.dropout(layer(x), training=training)
        return self.head(x)


def subclassed(manifest: Manifest) -> keras.Model:
    return Subclassed(len(manifest.class_names))


class Jitter(L.Layer):
    """Random numbers of its own, from a generator of its own and from the process's."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        if not training:
            return x
        shape = keras.ops.shape(x)
        return (
            x
            + 0.1 * keras.random.normal(shape, seed=self.generator)
            + 0.1 * keras.random.normal(shape)
        )


def seed_generator(manifest: Manifest) -> keras.Model:
    inputs = _image(manifest)
    x = L.Dense(24, activation="relu")(Jitter()(_flat(inputs)))
    return keras.Model({"image": inputs}, L.Dense(len(manifest.class_names))(x))


def lstm(manifest: Manifest) -> keras.Model:
    """The rows of an image as a sequence, in both directions."""
    inputs = _image(manifest)
    x = L.Bidirectional(L.LSTM(8, dropout=0.2))(L.Reshape((8, 8))(L.Rescaling(1 / 16)(inputs)))
    return keras.Model([inputs], L.Dense(len(manifest.class_names))(x))


class Spread(L.Layer):
    """Adds to the loss how far the examples' values are from 0, on average."""

    def call(self, x):
        self.add_loss(0.1 * keras.ops.mean(x**2))
        return x


def penalised(manifest: Manifest) -> keras.Model:
    """What a model adds to the loss in each of Keras' ways, with layers between whose replicas wait for each other."""
    inputs = _image(manifest)
    x = L.Dense(24, kernel_regularizer=keras.regularizers.L2(0.01), activity_regularizer="l1")(
        _flat(inputs)
    )
    x = Spread()(L.BatchNormalization()(x))
    return keras.Model(
        inputs, L.Dense(len(manifest.class_names), bias_regularizer=keras.regularizers.L1L2())(x)
    )


def batch_norm(manifest: Manifest) -> keras.Model:
    """Keras' own, not told to sum over the replicas, and weights that follow from themselves."""
    inputs = _image(manifest)
    x = L.BatchNormalization()(L.Conv2D(4, 3)(L.Rescaling(1 / 16)(inputs)))
    x = L.SpectralNormalization(L.Dense(24, activation="relu"))(L.Flatten()(x))
    return keras.Model({"image": inputs}, L.Dense(len(manifest.class_names))(x))


class Words(L.Layer):
    """Each row of an image as a text of its pixels."""

    def call(self, image):
        return tf.strings.reduce_join(
            tf.strings.as_string(tf.cast(image[..., 0], tf.int32)), axis=2, separator=" "
        )

    def compute_output_spec(self, image):
        return keras.KerasTensor(image.shape[:2], "string")


def text(manifest: Manifest) -> keras.Model:
    """Texts by vocabularies that are known when it is built, and statistics that are."""
    inputs = _image(manifest)
    words = L.TextVectorization(vocabulary=[str(i) for i in range(17)], output_sequence_length=64)
    joined = L.Lambda(
        lambda rows: tf.strings.reduce_join(rows, axis=1, separator=" "), output_shape=()
    )
    x = L.Embedding(20, 4)(words(joined(Words()(inputs))))
    normal = L.Normalization()
    normal.adapt(np.arange(17.0)[:, None])
    x = L.Concatenate()([L.Flatten()(x), L.Flatten()(normal(L.Rescaling(1.0)(inputs)))])
    return keras.Model({"image": inputs}, L.Dense(len(manifest.class_names))(x))


def frozen(manifest: Manifest) -> keras.Model:
    """A backbone that is not trained, with batch normalisation and a regulariser, below a head that is."""
    inputs = _image(manifest)
    layers = [
        L.Conv2D(8, 3, kernel_regularizer="l2"),
        L.BatchNormalization(),
        L.ReLU(),
        L.Dropout(0.2),
    ]
    backbone = keras.Sequential([keras.Input((8, 8, 1)), *layers], name="backbone")
    backbone.trainable = False
    return keras.Model(
        inputs,
        L.Dense(len(manifest.class_names))(L.Flatten()(backbone(L.Rescaling(1 / 16)(inputs)))),
    )


@keras.saving.register_keras_serializable("tests")
class Slow(L.Layer):
    """Passes on what it gets; outside of training it takes 0.7 s for a batch."""

    def call(self, x, training=False):
        if training:
            return x
        held = tf.data.Dataset.from_tensors(x).apply(sleep(700_000)).get_single_element()
        return tf.reshape(held, tf.shape(x))


def slow(manifest: Manifest) -> keras.Model:
    """Learns at once, and takes long to evaluate."""
    inputs = _image(manifest)
    return keras.Model({"image": inputs}, L.Dense(len(manifest.class_names))(Slow()(_flat(inputs))))
