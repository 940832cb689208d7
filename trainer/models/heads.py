"""The last layer of the models here."""

import keras

from common.manifest import REGRESSION, Manifest


def in_units(manifest: Manifest, outputs: keras.KerasTensor) -> keras.KerasTensor:
    """Outputs [N, k] of a network as its task takes them, in float32: logits as they are, numbers in the targets' units.

    A network's outputs begin around 0 and move by about its learning rate in a step; so those of a regression count
    standard deviations from the mean of the training split.
    """
    if manifest.task != REGRESSION:
        return outputs
    means, spreads = zip(*manifest.target_spreads, strict=True)
    return keras.layers.Rescaling(list(spreads), list(means), dtype="float32", name="in_units")(outputs)
