"""Wraps a user's own model as a model of features by name, which is what the trainer uses.

model = by_name(network(manifest), prepare, manifest, "mine:network")
logits = model({"image": images})
"""

from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest

Columns = Mapping[str, tf.Tensor]
# Methods that Keras calls in `fit`, and the training loop here does not.
_OWN_TRAINING = ("train_step", "compute_loss")


def by_name(
    model: keras.Model, prepare: Callable[[Columns], Columns], manifest: Manifest, model_name: str
) -> keras.Model:
    """Returns a built model that takes the result of `prepare` by name.

    Several features are given to the user's model by name, and a single one as it is, unless the
    model takes a dict. A functional model uses those that it has inputs for.

    Args:
      model: The user's model.
      prepare: Makes the model's inputs from the dataset's columns.
      manifest: Manifest of the dataset.
      model_name: Value of `--model`, for messages.

    Raises:
      UserError: If it is no Keras model, or has a `train_step` or `compute_loss` of its own.
    """
    if not isinstance(model, keras.Model):
        raise UserError(
            f"--model {model_name} gives a {type(model).__name__}, which is no keras.Model"
        )
    for method in _OWN_TRAINING:
        if getattr(type(model), method) is not getattr(keras.Model, method):
            raise UserError(
                f"--model {model_name} has a {method} of its own, which is not called here; what "
                "it adds to the loss can be given to add_loss in a layer"
            )
    columns = {
        f.name: tf.TensorSpec([None, *f.shape], f.dtype, name=f.name) for f in manifest.inputs
    }
    prepared = (
        tf.function(prepare, autograph=False).get_concrete_function(columns).structured_outputs
    )
    inputs = {
        name: keras.Input(x.shape[1:], dtype=x.dtype.name, name=name)
        for name, x in prepared.items()
    }
    takes_names = len(inputs) > 1 or isinstance(getattr(model, "input", None), dict)
    outputs = model(inputs if takes_names else next(iter(inputs.values())))
    return keras.Model(inputs, outputs, name=model.name)
