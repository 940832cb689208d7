"""Learning rates of some layers as shares of the optimizer's: a pretrained backbone moves slower than a new head.

    layer_rates.apply({"backbone": 0.1}, model, optimizer)

The rate itself is multiplied, and not the gradient, of which Adam's steps do not depend on the size.
"""

from collections.abc import Mapping

import keras
import tensorflow as tf


def apply(factors: Mapping[str, float], model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    """Multiplies the learning rate of the layers of these names, and of all within them; the innermost layer decides.

    It also holds for the weights' decay that an optimizer does by itself (AdamW), which goes by the learning rate; a
    `ValueError` says that it cannot be had there, or that there is no layer of a name.
    """
    by_weight = {id(weight): 1.0 for weight in model.trainable_variables}
    for layer in model._flatten_layers():
        if layer.name in factors:
            by_weight.update({id(weight): factors[layer.name] for weight in layer.trainable_weights})
    if unknown := factors.keys() - {layer.name for layer in model._flatten_layers()}:
        raise ValueError(f"name a layer {sorted(unknown)[0]!r}, and no layer is called so")
    if not factors:
        return
    general = keras.optimizers.Optimizer
    if type(optimizer)._apply_weight_decay is not general._apply_weight_decay:
        raise ValueError(
            f"cannot be had with {type(optimizer).__name__}, whose decay of weights is of a kind of its own"
        )
    by_index = [by_weight[id(weight)] for weight in model.trainable_variables]
    update = optimizer.update_step

    def update_step(gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        rate = tf.cast(learning_rate, tf.float32) * by_index[optimizer._get_variable_index(variable)]
        if optimizer.weight_decay and optimizer._use_weight_decay(variable):
            variable.assign_sub(variable * tf.cast(optimizer.weight_decay * rate, variable.dtype))
        update(gradient, variable, rate)

    optimizer.update_step = update_step
    optimizer._apply_weight_decay = lambda variables: None
