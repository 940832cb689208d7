"""Registry of models: those of the trainer, by name, and functions of the user's own.

A model is a module with `build(manifest, *, <options>) -> keras.Model`, from features by name to
logits (a user's function may return other models, see `by_name`). Every keyword of `build` is an
option of the trainer by that name. The module may state defaults that suit it: OPTIMIZER,
LEARNING_RATE, WEIGHT_DECAY, SCHEDULE with BOUNDARIES_EPOCHS and FACTORS, AUGMENT.
`package.module:function` names such a function anywhere on Python's path.

The module may also have these functions:

- `prepare(manifest, columns) -> columns` makes the model's inputs (and keeps the label, if it is
  there) from the dataset's columns, in graph operations that look at each example alone. It is
  applied once to a split that is in memory and not augmented, otherwise to each batch after
  augmentation, and inside the exported model. Without it a model takes the manifest's inputs as
  they are.
- `task(manifest) -> Task` defines the outputs, if the dataset's label does not.
- `optimizer(manifest, schedule) -> keras.optimizers.Optimizer` makes the optimizer, whose learning
  rate is the schedule.

Keywords of these two are options too.

Modules are imported when they are needed, because they import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pydantic

from common.errors import UserError, unknown

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from common.manifest import Manifest
    from trainer.tasks.task import Task

_OF_IMAGES, _OF_TABLES = ("cnn", "resnet"), ("wide_deep",)
NAMES = (*_OF_IMAGES, *_OF_TABLES)
# Defaults for names that a model's module does not state.
DEFAULTS = {
    "OPTIMIZER": "adam",
    "LEARNING_RATE": 1e-3,
    "WEIGHT_DECAY": None,
    "SCHEDULE": "constant",
    "BOUNDARIES_EPOCHS": (),
    "FACTORS": (1.0,),
    "AUGMENT": "none",
}


def check_name(name: str) -> None:
    """Checks that a text can be the name of a model.

    Raises:
      UserError: If it is neither a model of the trainer nor of the form `package.module:function`.
    """
    if name not in NAMES and not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
        raise unknown("--model", name, (*NAMES, "package.module:function"))


def default(name: str, attribute: str) -> Any:
    """Returns what a model's module states under a name, or else the general default.

    Args:
      name: Name of the model.
      attribute: Name in the module, such as `LEARNING_RATE`, or `optimizer`, whose default is None.

    Raises:
      UserError: If there is no such module, or it imports one that does not exist.
    """
    return getattr(_module(name), attribute, DEFAULTS.get(attribute))


def suited(name: str | None, manifest: Manifest) -> str:
    """Returns the model's name; without one, the name of the first model for such a dataset.

    A model of the user's own is not compared with the dataset.

    Args:
      name: Name of the model, which `check_name` accepts; None or empty to choose one.
      manifest: Manifest of the dataset.

    Raises:
      UserError: If the named model is not for such a dataset; or if an input of the dataset is
        encoded as words, which none of the trainer's models reads, not even the first one.
    """
    fitting = _OF_TABLES if manifest.is_table else _OF_IMAGES
    name = name or fitting[0]
    if name not in NAMES:
        return name
    if name not in fitting:
        raise UserError(
            f"--model {name} does not fit dataset {manifest.name!r}; use {' or '.join(fitting)}"
        )
    if texts := {e.columns[0] for e in (*manifest.deep, *manifest.wide) if e.kind == "words"}:
        raise UserError(
            f"dataset {manifest.name!r} has texts ({', '.join(sorted(texts))}), which {name} does "
            "not read; give --model a model of your own"
        )
    return name


@dataclasses.dataclass(frozen=True)
class Builder:
    """Builds a model; each call gives a new one, with weights of the same names and shapes.

    Attributes:
      name: Name of the model.
      build: Returns a new model.
      task: Meaning of its outputs.
      prepare: Makes the model's inputs, and keeps the label if it is there, from columns of the
        dataset by name, [N, ...].
      task_by: `package.module:function` that makes the task, perhaps with its keywords as JSON
        behind a space; None if the dataset's label defines the task.
    """

    name: str
    build: Callable[[], keras.Model]
    task: Task
    prepare: Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]
    task_by: str | None

    def __call__(self) -> keras.Model:
        """Returns a new model."""
        return self.build()


def builder(
    name: str, manifest: Manifest, network: Mapping[str, Any], own: Sequence[str] = ()
) -> Builder:
    """Returns the builder of a model.

    Args:
      name: Value of `--model`.
      manifest: Manifest of the dataset.
      network: Keywords of the model's function that are flags of the trainer.
      own: Other keywords of it, and of the module's `task`, as for `own_options`.

    Raises:
      UserError: If there is no such model, its function does not take a keyword, a value is not of
        the default's type, or the task cannot be made.
    """
    if useless := network.keys() - options(name).keys():
        flags = ", ".join(f"--{option.replace('_', '-')}" for option in sorted(useless))
        raise UserError(f"{flags} means nothing to --model {name}; leave it out")
    values = own_options(name, own)
    keywords = {key: values[key] for key in options(name)} | dict(network)
    task_keywords = {key: values[key] for key in options(name, "task")}
    module = _module(name)
    prepare = functools.partial(getattr(module, "prepare", _inputs_and_label), manifest)

    def build() -> keras.Model:
        model = _function(name)(manifest, **keywords)
        if name in NAMES:
            return model
        from trainer.models.by_name import by_name

        return by_name(model, prepare, manifest, name)

    task_by = f"{module.__name__}:task" if hasattr(module, "task") else None
    if task_keywords:
        task_by = f"{task_by} {json.dumps(task_keywords)}"
    return Builder(name, build, task(task_by, manifest), prepare, task_by)


def options(name: str, function: str = "") -> dict[str, Any]:
    """Returns the optional keywords, with their defaults, of a function of a model's module.

    Args:
      name: Name of the model.
      function: Name of the function, such as `optimizer`; without one, the function that makes the
        model.

    Returns:
      The defaults by name; empty if the module does not have `function`.

    Raises:
      UserError: If there is no such module, or no function in it that makes the model.
    """
    found = getattr(_module(name), function, None) if function else _function(name)
    parameters = inspect.signature(found).parameters.values() if found else ()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def own_options(name: str, texts: Sequence[str]) -> dict[str, Any]:
    """Returns the options of a model's function, and of its module's `optimizer` and `task`.

    Args:
      name: Name of the model.
      texts: Values as `NAME=VALUE`; options that are not listed have their defaults.

    Returns:
      The values of all options by name. If the default is a bool, an int or a float, so is the
      value; otherwise it is the text.

    Raises:
      UserError: If there is no such model or option, or a value is not of the default's type.
    """
    values = options(name) | options(name, "optimizer") | options(name, "task")
    for option, _, text in (each.partition("=") for each in texts):
        if option not in values:
            raise UserError(f"--model {name}: {unknown('option', option, values)}")
        default = values[option]
        kind = type(default) if isinstance(default, bool | int | float) else str
        try:
            values[option] = pydantic.TypeAdapter(kind).validate_python(text)
        except pydantic.ValidationError:
            raise UserError(
                f"--model {name}: {option}={text} is not of type {kind.__name__}; give a value "
                f"such as {default}"
            ) from None
    return values


def task(function: str | None, manifest: Manifest) -> Task:
    """Returns the task that a function makes, or else the task of the dataset.

    Args:
      function: `task_by` of a model's `Builder`.
      manifest: Manifest of the dataset.

    Raises:
      UserError: If there is no such function, or the dataset's own task cannot be made.
    """
    from trainer.tasks.of_dataset import task_of

    if function is None:
        return task_of(manifest)
    name, _, options_json = function.partition(" ")
    return _function(name)(manifest, **json.loads(options_json or "{}"))


# Takes the place of `prepare` in a module that has none.
def _inputs_and_label(manifest: Manifest, columns: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    names = {manifest.label, *(feature.name for feature in manifest.inputs)}
    return {name: column for name, column in columns.items() if name in names}


def _function(name: str) -> Callable[..., Any]:
    attribute = name.partition(":")[2] or "build"
    if (function := getattr(_module(name), attribute, None)) is None:
        raise UserError(f"--model {name}: there is no {attribute} in that module")
    return function


def _module(name: str) -> types.ModuleType:
    path = name.split(":")[0] if ":" in name else f"trainer.models.{name}"
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise UserError(
            f"--model {name}: {error}; a module of your own must be on Python's path"
        ) from None
