"""A model of which one layer learns slower: `--model together:thawed`."""

import keras

LEARNING_RATE_FACTORS = {"backbone": 0.1}


def thawed(manifest) -> keras.Model:
    layers = [keras.layers.Rescaling(1 / 16), keras.layers.Flatten(), keras.layers.Dropout(0.2)]
    layers += [keras.layers.Dense(24, "relu", name="backbone", kernel_regularizer="l2")]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers, keras.layers.Dense(10)])
