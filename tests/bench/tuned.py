"""The models of docs/MODELS.md, "Fine-tuning": a backbone of Keras' own under a new head, frozen and thawed."""

import keras

from trainer.base.manifest import Manifest

LEARNING_RATE_FACTORS = {"backbone": 0.1}


def frozen(manifest: Manifest, *, trainable: bool = False) -> keras.Model:
    """MobileNetV2 of a third of the width; only the head is trained."""
    shape = manifest.feature("image").shape
    backbone = keras.applications.MobileNetV2(shape, alpha=0.35, include_top=False, weights=None, name="backbone")
    backbone.trainable = trainable
    inputs = keras.Input(shape)
    values = backbone(keras.layers.Rescaling(1 / 127.5, offset=-1)(inputs))
    values = keras.layers.GlobalAveragePooling2D()(values)
    return keras.Model(inputs, keras.layers.Dense(manifest.outputs, name="head")(values))


def thawed(manifest: Manifest) -> keras.Model:
    """The same, all of it trained."""
    return frozen(manifest, trainable=True)
