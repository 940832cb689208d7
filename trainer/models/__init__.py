"""The models: by name, or a function of the user's own.

A model is a module with `build(manifest, *, <options>) -> keras.Model`, from raw features by name to logits; every
keyword of `build` is an option of the trainer by that name. It may state what suits it: OPTIMIZER, LEARNING_RATE,
WEIGHT_DECAY, SCHEDULE with BOUNDARIES_EPOCHS and FACTORS, AUGMENT. `package.module:function` names such a function anywhere on Python's path.

Modules are imported when they are asked for, because they import TensorFlow.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainer.errors import UserError, unknown

if TYPE_CHECKING:
    import keras

    from trainer.manifest import Manifest
    from trainer.options import Options

NAMES = ("cnn", "resnet")
# Options that only some models take; given for another they would do nothing, and are refused.
MODEL_OPTIONS = ("num_layers", "batch_norm_decay", "batch_norm_epsilon", "batch_norm_statistics")
_DEFAULTS = {
    "OPTIMIZER": "adam",
    "LEARNING_RATE": 1e-3,
    "WEIGHT_DECAY": 0.0,
    "SCHEDULE": "constant",
    "BOUNDARIES_EPOCHS": (),
    "FACTORS": (1.0,),
    "AUGMENT": "none",
}


def check_name(name: str) -> str:
    """Returns `name` if it can be a model's.

    Raises:
      UserError: If it is neither known nor `package.module:function`.
    """
    if name not in NAMES and not all(part.isidentifier() for part in name.replace(":", ".").split(".")):
        raise unknown("--model", name, NAMES)
    if name not in NAMES and name.count(":") != 1:
        raise unknown("--model", name, (*NAMES, "package.module:function"))
    return name


def default(opts: Options, what: str) -> Any:
    """What the model states under that name, for example `LEARNING_RATE`."""
    return getattr(_module(opts.model), what, _DEFAULTS[what])


def builder(opts: Options, manifest: Manifest) -> Callable[[], keras.Model]:
    """Makes the model that the options name, the same at every call.

    Raises:
      UserError: If there is no such function, or it does not take an option that is given.
    """
    function = _function(opts.model)
    given = {name: value for name in MODEL_OPTIONS if (value := getattr(opts, name)) is not None}
    if useless := given.keys() - inspect.signature(function).parameters.keys():
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(useless))
        raise UserError(f"{flags} means nothing to --model {opts.model}; leave it out")
    return functools.partial(function, manifest, **given)


def _module(name: str) -> types.ModuleType:
    path = name.split(":")[0] if ":" in name else f"trainer.models.{name}"
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise UserError(f"--model {name}: {error}; a module of your own must be on Python's path") from None


def _function(name: str) -> Callable[..., keras.Model]:
    function = name.split(":")[1] if ":" in name else "build"
    try:
        return getattr(_module(name), function)
    except AttributeError:
        raise UserError(f"--model {name}: there is no {function} in that module") from None
