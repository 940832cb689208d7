"""Models of a table with one logit, and metrics of every kind: `--model ten_models:masked`."""

import keras
import tensorflow as tf

from trainer.tasks.of_dataset import Binary

L, M = keras.layers, keras.metrics


class Heavy(M.Mean):
    """The mean error, in which positives weigh thrice."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = keras.ops.cast(y_true, "float32")
        super().update_state(keras.ops.abs(y_true - y_pred), 1 + 2 * y_true)


def metrics():
    return [
        Heavy(name="heavy"),
        M.Precision(0.3, name="precision"),
        M.F1Score("macro", threshold=0.3, name="f1"),
    ]


def task(manifest):
    return Binary(manifest.class_names, metrics=metrics())


def prepare(manifest, columns):
    """Five numbers, all 0, which is masked, in some of the examples."""
    miles = columns["miles"][:, tf.newaxis]
    numbers = miles / 3, miles - 2, tf.math.floormod(10 * miles, [3, 4, 5])
    label = {name: column for name, column in columns.items() if name == manifest.label}
    return {"numbers": tf.where(miles > 1, tf.concat(numbers, 1), 0.0), **label}


def masked(manifest):
    return keras.Sequential([keras.Input((5,)), L.Masking(), L.Dense(8, "tanh"), L.Dense(1)])


class Spread(L.Layer):
    """Adds to the loss how far the examples' values are from 0, on average."""

    def call(self, x):
        self.add_loss(0.1 * keras.ops.mean(x**2))
        return x


def normalised(manifest):
    """Returns a model that adds to the loss in each of Keras' ways, but not by a frozen layer."""
    layers = [
        L.Dense(6, "tanh", kernel_regularizer="l2", trainable=False),
        L.Dense(8, kernel_regularizer="l2", activity_regularizer="l1"),
        L.BatchNormalization(momentum=0.9),
        Spread(),
        L.Dense(1, bias_regularizer=keras.regularizers.L1L2(0.01, 0.01)),
    ]
    return keras.Sequential([keras.Input((5,)), *layers])
