"""A model of a list of two inputs, made of one column: `--model two_inputs:network`."""

from __future__ import annotations

import keras
import tensorflow as tf

L = keras.layers


def prepare(manifest, columns):
    """The halves of an image."""
    image = tf.cast(columns["image"], tf.float32)
    return {"upper": image[:, :4], "lower": image[:, 4:]}


def network(manifest):
    """The inputs in another order than that of their names: nothing would fail if exchanged."""
    inputs = [keras.Input((4, 8, 1), name=name) for name in ("upper", "lower")]
    parts = [L.Dense(16)(L.Flatten()(x)) for x in inputs]
    return keras.Model(inputs, L.Dense(10)(L.Concatenate()(parts)))
