"""The models: by name, or a function of the user's own.

A model is a module with `build(manifest, *, <options>) -> keras.Model`, from features by name to
logits (a user's function may return others, see `by_name`); every keyword of `build` is an option
of the trainer by that name. It may state what suits it: OPTIMIZER, LEARNING_RATE, WEIGHT_DECAY,
SCHEDULE with BOUNDARIES_EPOCHS and FACTORS, AUGMENT. `package.module:function` names such a
function anywhere on Python's path.

It may also have `prepare(manifest, columns) -> columns`: what the model takes (and the label, if it
is there) from the dataset's columns, in graph operations that look at each example alone. It is
applied once to a split that is resident in memory and not augmented, to each batch otherwise, after
augmentation, and inside the exported model. Without it a model takes the manifest's inputs as they
are. And it may have `task(manifest) -> Task`: what the outputs mean, if the dataset's label does
not say it all; and `optimizer(manifest, schedule) -> keras.optimizers.Optimizer`, whose learning
rate is the schedule.

Modules are imported when they are asked for, because they import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from common.errors import UserError, unknown

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from common.manifest import Manifest
    from trainer.tasks.task import Task

_OF_IMAGES, _OF_TABLES = ("cnn", "resnet"), ("wide_deep",)
NAMES = (*_OF_IMAGES, *_OF_TABLES)
# Of what a module does not state.
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
    """Refuses what can be no model's name."""
    if name not in NAMES and not re.fullmatch(r"\w+(\.\w+)*:\w+", name):
        raise unknown("--model", name, (*NAMES, "package.module:function"))


def default(name: str, attribute: str) -> Any:
    """Returns what the module of a model states, for example as its `LEARNING_RATE`; None of its own `optimizer`, if none."""
    return getattr(_module(name), attribute, DEFAULTS.get(attribute))


def suited(name: str | None, manifest: Manifest) -> str:
    """Returns the name, or without one that of the first model for such a dataset."""
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
            "not read; give --model a "
            "model of your own"
        )
    return name


@dataclasses.dataclass(frozen=True)
class Builder:
    """Makes a model, the same at every call, and what it takes."""

    name: str
    build: Callable[[], keras.Model]
    task: Task
    # From columns of the dataset by name [N, ...] to what the model takes, and the label if it is
    # there.
    prepare: Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]
    task_by: (
        str | None
    )  # `package.module:function` that makes the task, if the dataset does not say it

    def __call__(self) -> keras.Model:
        """Returns the model."""
        return self.build()


def builder(name: str, manifest: Manifest, network: Mapping[str, Any]) -> Builder:
    """Returns the builder of a model.

    Args:
      name: As `--model` has it.
      manifest: Of the dataset.
      network: Keywords of the model's function.
    """
    if useless := network.keys() - options(name).keys():
        flags = ", ".join(f"--{option.replace('_', '-')}" for option in sorted(useless))
        raise UserError(f"{flags} means nothing to --model {name}; leave it out")
    module = _module(name)
    prepare = functools.partial(getattr(module, "prepare", _inputs_and_label), manifest)

    def build() -> keras.Model:
        model = _function(name)(manifest, **network)
        if name in NAMES:
            return model
        from trainer.models.by_name import by_name

        return by_name(model, prepare, manifest, name)

    task_by = f"{module.__name__}:task" if hasattr(module, "task") else None
    return Builder(name, build, task(task_by, manifest), prepare, task_by)


def options(name: str) -> dict[str, Any]:
    """Returns the keywords of a model's function, each with its default."""
    _, *keywords = inspect.signature(_function(name)).parameters.values()
    return {
        keyword.name: keyword.default
        for keyword in keywords
        if keyword.default is not keyword.empty
    }


def task(function: str | None, manifest: Manifest) -> Task:
    """Returns the task that a function of the user's makes, by its name, or else that of the dataset."""
    from trainer.tasks.of_dataset import task_of

    return (_function(function) if function else task_of)(manifest)


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
