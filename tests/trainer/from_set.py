"""A network whose layers come out of a set, and have no names: `--model from_set:chain`."""

import keras

L = keras.layers


def chain(manifest):
    hidden = [L.Dense(16, activation) for activation in {"relu", "tanh", "gelu", "softplus"}]
    return keras.Sequential([L.Rescaling(1 / 16), L.Flatten(), *hidden, L.Dense(10)])
