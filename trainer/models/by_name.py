"""Models of the user's own as models from features by name, which are what the trainer knows.

model = by_name(network(manifest), prepare, manifest, "mine:network")
logits = model({"image": images})
"""

from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest

Columns = Mapping[str, tf.Tensor]
# What Keras would call in `fit`, and nothing here does.
_OWN_TRAINING = ("train_step", "compute_loss")


def by_name(
    model: keras.Model, prepare: Callable[[Columns], Columns], manifest: Manifest, model_name: str
) -> keras.Model:
    """Returns the model, built, as one that takes by name what `prepare` makes of the columns that a client sends.

    It gets a single feature as it is, unless it takes a dict, and several by name, of which a
    functional model uses those that it has inputs for.
    """
    if not isinstance(model, keras.Model):
        raise UserError(
            f"--model {model_name} gives a {type(model).__name__}, which is no keras.Model"
        )
    for method in _OWN_TRAINING:
        if getattr(type(model), method) is not getattr(keras.Model, method):
            raise UserError(
                f"--model {model_name} has a {method} of its own, which is not called here; what "
                "it adds to the loss can "
                "be given to add_loss in a layer"
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
