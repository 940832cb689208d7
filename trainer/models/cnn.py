"""The small convolutional network of the MNIST examples (Chollet, Deep Learning with Python, 5.1).

Three 3x3 convolutions of 32, 64 and 64 filters with 2x2 max pooling between them, a dense layer of
64: 93,322 parameters on 28x28x1 images and 10 classes.
"""

import keras

from common.manifest import Manifest
from trainer.nn.layers import in_units

OPTIMIZER = "adam"
LEARNING_RATE = 1e-3
# Smallest side of an image that is not used up by three unpadded convolutions and two poolings:
# 18 -> 16 -> 8 -> 6 -> 3 -> 1.
_UNPADDED_SIDE = 18


def build(manifest: Manifest) -> keras.Model:
    """Returns a model from images to the outputs of the dataset's task.

    Images are [N, height, width, channels] in the dataset's dtype, and outputs float32 [N,
    outputs]. Images with a side below 18 pixels, too small for the network as published, are padded
    at each convolution and pooling.

    Raises:
      UserError: If the dataset has no feature `image`, or one for regression has no training
        examples.
    """
    image = manifest.feature("image")
    padding = "valid" if min(image.shape[:2]) >= _UNPADDED_SIDE else "same"
    inputs = keras.Input(image.shape, dtype=image.dtype, name=image.name)
    assert image.value_range
    low, high = image.value_range
    x = keras.layers.Rescaling(1 / (high - low), offset=-low / (high - low))(inputs)
    for filters, pool in ((32, True), (64, True), (64, False)):
        x = keras.layers.Conv2D(filters, 3, padding=padding, activation="relu")(x)
        if pool:
            x = keras.layers.MaxPooling2D(2, padding=padding)(x)
    x = keras.layers.Dense(64, activation="relu")(keras.layers.Flatten()(x))
    outputs = in_units(manifest, keras.layers.Dense(manifest.outputs, dtype="float32")(x))
    return keras.Model({image.name: inputs}, outputs, name="cnn")
