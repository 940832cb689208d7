"""A recurrent network that drops at each time step: `--model recurrent:network`."""

import keras

L = keras.layers


class DroppingCell(L.SimpleRNNCell):
    """A recurrent cell behind dropout of its input, of which each time step has a mask of its own."""

    def __init__(self) -> None:
        super().__init__(16)
        self.drop = L.Dropout(0.3)

    def call(self, inputs, states, training=False):
        return super().call(self.drop(inputs, training=training), states, training=training)


def network(manifest) -> keras.Model:
    return keras.Sequential([L.Rescaling(1 / 16), L.Reshape((8, 8)), L.RNN(DroppingCell()), L.Dense(10)])
