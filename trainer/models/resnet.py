"""ResNet v1 for small images (He et al. 2015, arXiv:1512.03385, section 4.2).

A 3x3 convolution of 16 filters, then three stages of n basic blocks with 16, 32 and 64 filters, the
second and third at half the resolution of the one before; 6n + 2 layers with weights. Shortcuts
carry no weights (option A): where shapes change, they average-pool and pad the channels with zeros.
"""

import keras
import numpy as np

from common.errors import UserError
from common.manifest import Manifest
from trainer.nn.layers import BatchNormalization, in_units

OPTIMIZER = "sgd"
LEARNING_RATE = 0.1
WEIGHT_DECAY = 2e-4
# As in TensorFlow's cifar10_estimator; the paper divides at steps 32,000 and 48,000 and decays
# weights by 1e-4. The learning rate is LEARNING_RATE times a factor, the next one from each
# boundary on; in epochs of data seen.
BOUNDARIES_EPOCHS = (82, 123, 300)
FACTORS = (1.0, 0.1, 0.01, 0.002)
SCHEDULE = "piecewise"
AUGMENT = "crop_flip"  # As in the paper.

_STEM_FILTERS = 16
_STAGES = ((16, 1), (32, 2), (64, 2))  # Filters, and stride of the first block.


def build(
    manifest: Manifest,
    *,
    num_layers: int = 44,
    batch_norm_decay: float = 0.997,
    batch_norm_epsilon: float = 1e-5,
) -> keras.Model:
    """Returns a model from images to the outputs of the dataset's task.

    Images are [N, height, width, channels] in the dataset's dtype, and outputs float32 [N,
    outputs].

    Args:
      manifest: Manifest of the dataset.
      num_layers: Number of layers with weights, 6n + 2.
      batch_norm_decay: Decay of the moving statistics in each step.
      batch_norm_epsilon: Number that is added to variances.

    Raises:
      UserError: If `num_layers` is no such number, the dataset has no feature `image`, or one for
        regression has no training examples.
    """
    blocks = (num_layers - 2) // 6
    if blocks < 1 or (num_layers - 2) % 6:
        raise UserError(
            f"--num-layers {num_layers}: a ResNet has 6n + 2 layers; use 8, 14, 20, 26, 32, 44, "
            "56 or 110"
        )

    def convolution(x: keras.KerasTensor, filters: int, stride: int) -> keras.KerasTensor:
        # With a stride, "same" pads by an amount that depends on the image's size, which shifts
        # the kernel's centre.
        if stride > 1:
            x = keras.layers.ZeroPadding2D(1)(x)
        x = keras.layers.Conv2D(
            filters,
            3,
            stride,
            padding="same" if stride == 1 else "valid",
            use_bias=False,
            kernel_initializer="he_normal",
        )(x)
        return BatchNormalization(decay=batch_norm_decay, epsilon=batch_norm_epsilon)(x)

    def block(x: keras.KerasTensor, filters: int, stride: int) -> keras.KerasTensor:
        shortcut = x if stride == 1 else keras.layers.AveragePooling2D(stride, padding="same")(x)
        if (missing := filters - x.shape[-1]) > 0:
            shortcut = keras.ops.pad(
                shortcut, ((0, 0), (0, 0), (0, 0), (missing // 2, missing - missing // 2))
            )
        x = keras.layers.ReLU()(convolution(x, filters, stride))
        return keras.layers.ReLU()(keras.layers.Add()([convolution(x, filters, 1), shortcut]))

    image = manifest.feature("image")
    inputs = keras.Input(image.shape, dtype=image.dtype, name=image.name)
    assert image.value_range
    low, high = image.value_range
    # Values are scaled to [-1, 1): bytes become x / 128 - 1.
    half = (high - low + np.issubdtype(image.dtype, np.integer)) / 2
    x = keras.layers.Rescaling(1 / half, offset=-low / half - 1)(inputs)
    x = keras.layers.ReLU()(convolution(x, _STEM_FILTERS, 1))
    for filters, stride in _STAGES:
        for i in range(blocks):
            x = block(x, filters, stride if i == 0 else 1)
    x = keras.layers.GlobalAveragePooling2D(dtype="float32")(x)
    logits = keras.layers.Dense(manifest.outputs, dtype="float32")(x)
    return keras.Model({image.name: inputs}, in_units(manifest, logits), name=f"resnet{num_layers}")
