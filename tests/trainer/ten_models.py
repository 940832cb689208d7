"""Models of a table with one logit, and metrics of every kind: `--model ten_models:masked`."""

import keras
import tensorflow as tf
from own_models import Spread

from common.manifest import Manifest
from trainer.tasks.of_dataset import Binary

L, M = keras.layers, keras.metrics


class Heavy(M.Mean):
    """The mean error, in which positives weigh thrice."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = keras.ops.cast(y_true, "float32")
        super().update_state(keras.ops.abs(y_true - y_pred), 1 + 2 * y_true)


def metrics() -> list[M.Metric]:
    return [
        Heavy(name="heavy"),
        M.MeanMetricWrapper(keras.losses.mean_squared_error, name="squares"),
        M.AUC(name="area"),
        M.Precision(0.3, name="precision"),
        M.F1Score("macro", threshold=0.3, name="f1"),
    ]


def task(manifest: Manifest) -> Binary:
    return Binary(manifest.class_names, metrics=metrics())


def prepare(manifest: Manifest, columns: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Two numbers and three words; all are 0, which is masked, in some of the examples."""
    miles, seconds = columns["miles"], tf.cast(columns["seconds"], tf.float32)
    words = [tf.math.floormod(seconds / 20, n) for n in (3, 4, 5)]
    numbers = tf.stack([miles / 3, miles - 2, *words], axis=1)
    label = {name: column for name, column in columns.items() if name == manifest.label}
    return {"numbers": tf.where(miles[:, tf.newaxis] > 1, numbers, 0.0), **label}


def masked(manifest: Manifest) -> keras.Model:
    return keras.Sequential([keras.Input((5,)), L.Masking(), L.Dense(8, "tanh"), L.Dense(1)])


def embedded(manifest: Manifest) -> keras.Model:
    numbers = keras.Input((5,))
    words = L.LSTM(4)(L.Embedding(6, 4, mask_zero=True)(numbers[:, 2:]))
    return keras.Model(numbers, L.Dense(1)(words))


def shared(manifest: Manifest) -> keras.Model:
    numbers, hidden = keras.Input((5,)), L.Dense(6, "tanh")
    halves = hidden(numbers[:, :2]), hidden(numbers[:, 2:4])
    return keras.Model(numbers, L.Dense(1)(L.Concatenate()(halves)))


def normalised(manifest: Manifest) -> keras.Model:
    layers = [L.Dense(8), L.BatchNormalization(momentum=0.9), L.ReLU(), L.Dense(1)]
    return keras.Sequential([keras.Input((5,)), *layers])


def penalised(manifest: Manifest) -> keras.Model:
    """Returns a model that adds to the loss in each of Keras' ways, but not by a frozen layer."""
    frozen = L.Dense(6, "tanh", kernel_regularizer="l2", trainable=False)
    hidden = L.Dense(8, kernel_regularizer="l2", activity_regularizer="l1")
    last = L.Dense(1, bias_regularizer=keras.regularizers.L1L2(0.01, 0.01))
    return keras.Sequential([keras.Input((5,)), frozen, hidden, Spread(), last])
