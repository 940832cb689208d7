"""A model of a list of two inputs, made of one column: `--model two_inputs:network`."""

from __future__ import annotations

from collections.abc import Mapping

import keras
import tensorflow as tf

from common.manifest import Manifest

L = keras.layers


def prepare(manifest: Manifest, columns: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The halves of an image, and the label if it is there."""
    image = tf.cast(columns["image"], tf.float32) / 16
    label = {name: column for name, column in columns.items() if name == manifest.label}
    return {"upper": image[:, :4], "lower": image[:, 4:], **label}


def network(manifest: Manifest) -> keras.Model:
    """The inputs in another order than that of their names: nothing would fail if exchanged."""
    inputs = [keras.Input((4, 8, 1), name=name) for name in ("upper", "lower")]
    parts = [L.Dropout(0.1)(L.Dense(16, "relu")(L.Flatten()(x))) for x in inputs]
    return keras.Model(inputs, L.Dense(len(manifest.class_names))(L.Concatenate()(parts)))
