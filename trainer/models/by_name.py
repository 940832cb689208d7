"""Models of the user's own, whatever the structure of their inputs, as models from features by name.

Users write `keras.Sequential`, models of one input, of a list or of a dict, and subclasses of `keras.Model`, built or not.
The trainer knows one kind: it takes a dict of features and has all its weights.
"""

import warnings
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest

Columns = Mapping[str, tf.Tensor]
# What Keras would call in `fit`, and nothing here does.
_OWN_TRAINING = ("train_step", "compute_loss")


def specs(prepare: Callable[[Columns], Columns], manifest: Manifest, name: str) -> dict[str, tf.TensorSpec]:
    """What a model of that name gets, [None, ...] by name: what `prepare` makes of the columns that a client sends."""
    columns = {f.name: tf.TensorSpec([None, *f.shape], f.dtype, name=f.name) for f in manifest.inputs}
    try:
        found = tf.function(prepare, autograph=False).get_concrete_function(columns).structured_outputs
    except KeyError as error:
        missing = error.args[0] if error.args else None
        if missing not in {f.name for f in manifest.features}:
            raise
        raise UserError(
            f"--model {name}: prepare needs the column {missing!r}, and a client of the model sends {', '.join(columns)}"
        ) from None
    return {column: tf.TensorSpec(tensor.shape, tensor.dtype) for column, tensor in found.items()}


def by_name(
    make: Callable[[], keras.Model], features: Callable[[], Mapping[str, tf.TensorSpec]], name: str
) -> keras.Model:
    """The model that `make` makes, built, as one that takes its inputs by name.

    A model that names its inputs must take all features and nothing else. One of a single input gets a single feature,
    whatever it calls it. A subclass gets the features by name; or, of a single feature, that, if it cannot take a dict.
    """
    model = make()
    if not isinstance(model, keras.Model):
        raise UserError(f"--model {name} gives a {type(model).__name__}, which is no keras.Model")
    for method in _OWN_TRAINING:
        if getattr(type(model), method) is not getattr(keras.Model, method):
            raise UserError(
                f"--model {name} has a {method} of its own, which is not called here; what it adds to the loss can be "
                "given to add_loss in a layer"
            )
    inputs = {n: keras.Input(spec.shape[1:], dtype=spec.dtype.name, name=n) for n, spec in features().items()}
    if isinstance(model, keras.Sequential):
        return _joined(model, inputs, _only(inputs, "a keras.Sequential takes one input", name))
    if type(model).input is keras.Model.input:  # a subclass, of which nothing says what it takes
        try:
            with warnings.catch_warnings(action="ignore"):  # Keras says much of a call that fails
                return _joined(model, inputs, inputs)
        except Exception as error:
            if len(inputs) > 1:
                raise
            try:
                return _joined(make(), inputs, *inputs.values())
            except Exception as another:
                raise another from error
    if isinstance(model.input, dict):
        _check(list(model.input), inputs, name)
        return model
    tensors = keras.tree.flatten(model.input)
    if len(tensors) == 1:
        given = _only(inputs, "it takes one input", name)
        return _joined(model, inputs, keras.tree.map_structure(lambda _: given, model.input))
    _check([tensor.name for tensor in tensors], inputs, name)
    return _joined(model, inputs, keras.tree.map_structure(lambda tensor: inputs[tensor.name], model.input))


def _joined(model: keras.Model, inputs: Mapping[str, keras.KerasTensor], arranged: object) -> keras.Model:
    return keras.Model(dict(inputs), model(arranged), name=model.name)


def _only(inputs: Mapping[str, keras.KerasTensor], why: str, name: str) -> keras.KerasTensor:
    if len(inputs) != 1:
        raise UserError(
            f"--model {name}: {why}, and is given {', '.join(sorted(inputs))}; name an input after each, or join them in "
            "a function prepare(manifest, columns) beside the model's"
        )
    return next(iter(inputs.values()))


def _check(taken: list[str], inputs: Mapping[str, keras.KerasTensor], name: str) -> None:
    """Keras hands a model the wrong inputs where names differ, and only warns."""
    if sorted(taken) != sorted(inputs):
        raise UserError(
            f"--model {name} takes {', '.join(sorted(taken))}, and is given {', '.join(sorted(inputs))}; take them all, or "
            "choose in a function prepare(manifest, columns) beside the model's"
        )
