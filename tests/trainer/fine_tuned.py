"""A user's model with a smooth optimizer of its own: `--model fine_tuned:network`."""

import keras

from common.manifest import Manifest

L = keras.layers
LEARNING_RATE = 0.05


def optimizer(
    manifest: Manifest, schedule: keras.optimizers.schedules.LearningRateSchedule
) -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(schedule, momentum=0.8, nesterov=True, weight_decay=0.1)


def network(manifest: Manifest) -> keras.Model:
    body = keras.Sequential(
        [L.Rescaling(1 / 16), L.Flatten(), L.LayerNormalization(), L.Dense(24, "tanh")], name="body"
    )
    return keras.Sequential(
        [keras.Input((8, 8, 1)), body, L.Dense(len(manifest.class_names), name="head")]
    )
