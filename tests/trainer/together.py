"""A model with dropout and a regulariser: `--model together:thawed`."""

import keras


def thawed(manifest) -> keras.Model:
    layers = [keras.layers.Rescaling(1 / 16), keras.layers.Flatten(), keras.layers.Dropout(0.2)]
    layers += [keras.layers.Dense(24, "relu", kernel_regularizer="l2")]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers, keras.layers.Dense(10)])
