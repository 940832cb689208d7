"""The models: by name, or a function of the user's own.

A model is a module with `build(manifest, *, <options>) -> keras.Model`, from features by name to logits (a user's function
may return others, see `by_name`); every keyword of `build` is an option of the trainer by that name. It may state what
suits it: OPTIMIZER, LEARNING_RATE, WEIGHT_DECAY, SCHEDULE with BOUNDARIES_EPOCHS and FACTORS, AUGMENT.
`package.module:function` names such a function anywhere on Python's path.

It may also have `prepare(manifest, columns) -> columns`: what the model takes (and the label, if it is there) from the
dataset's columns, in graph operations that look at each example alone. It is applied once to a split that is resident
in memory and not augmented, to each batch otherwise, after augmentation, and inside the exported model. Without it a model takes the manifest's inputs as
they are. And it may have `task(manifest) -> Task`: what the outputs mean, if the dataset's label does not say it all; and
`optimizer(manifest, schedule) -> keras.optimizers.Optimizer`, whose learning rate is the schedule.

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
_DEFAULTS = {
    "OPTIMIZER": "adam",
    "LEARNING_RATE": 1e-3,
    "WEIGHT_DECAY": 0.0,
    "SCHEDULE": "constant",
    "BOUNDARIES_EPOCHS": (),
    "FACTORS": (1.0,),
    "AUGMENT": "none",
}


def check_name(name: str) -> None:
    """Refuses what can be no model's name."""
    if name not in NAMES and not (name.count(":") == 1 and all(map(str.isidentifier, re.split("[.:]", name)))):
        raise unknown("--model", name, (*NAMES, "package.module:function"))


def default(name: str, what: str) -> Any:
    """What the model of that name states, for example as its `LEARNING_RATE`."""
    return getattr(_module(name), what, _DEFAULTS[what])


def suited(name: str | None, manifest: Manifest) -> str:
    """The name, or without one that of the first model for such a dataset."""
    fitting, kind = (_OF_TABLES, "a table") if manifest.is_table else (_OF_IMAGES, "of images")
    if name in NAMES and name not in fitting:
        raise UserError(
            f"--model {name} does not fit dataset {manifest.name!r}, which is {kind}; use {' or '.join(fitting)}"
        )
    words = {encoding.columns[0] for encoding in (*manifest.deep, *manifest.wide) if encoding.kind == "words"}
    if words and (name or fitting[0]) in NAMES:
        raise UserError(
            f"dataset {manifest.name!r} has texts ({', '.join(sorted(words))}), which {name or fitting[0]} does not read; give "
            "--model a model of your own"
        )
    return name or fitting[0]


@dataclasses.dataclass(frozen=True)
class Builder:
    """Makes a model, the same at every call, and what it takes."""

    name: str
    build: Callable[[], keras.Model]
    task: Task
    # From columns of the dataset by name [N, ...] to what the model takes, and the label if it is there.
    prepare: Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]
    task_by: str | None  # `package.module:function` that makes the task, if the dataset does not say it

    def __call__(self) -> keras.Model:
        """The model."""
        return self.build()


def builder(name: str, manifest: Manifest, given: Mapping[str, Any]) -> Builder:
    """The builder of the model of that name, with the options that are given."""
    module, function = _module(name), _function(name)
    if useless := given.keys() - inspect.signature(function).parameters.keys():
        flags = ", ".join(f"--{option.replace('_', '-')}" for option in sorted(useless))
        raise UserError(f"{flags} means nothing to --model {name}; leave it out")
    build = functools.partial(function, manifest, **given)
    prepare = functools.partial(getattr(module, "prepare", _as_they_are), manifest)
    if name not in NAMES:
        from trainer.models import by_name

        taken = functools.cache(functools.partial(by_name.specs, prepare, manifest, name))
        build = functools.partial(by_name.by_name, build, taken, name)
    task_by = f"{module.__name__}:task" if hasattr(module, "task") else None
    found = task(task_by, manifest)
    _ = found.metrics  # makes their variables on all replicas now, before a strategy would share them
    return Builder(name, build, found, prepare, task_by)


def options(name: str) -> dict[str, Any]:
    """Returns the keywords of a model's function, each with its default."""
    _, *keywords = inspect.signature(_function(name)).parameters.values()
    return {keyword.name: keyword.default for keyword in keywords if keyword.default is not keyword.empty}


def task(function: str | None, manifest: Manifest) -> Task:
    """Returns the task that a function of the user's makes, by its name, or else that of the dataset."""
    from trainer.tasks.of_dataset import task_of

    return (_function(function) if function else task_of)(manifest)


def own_optimizer(name: str) -> Callable[[Manifest, Any], keras.optimizers.Optimizer] | None:
    """The function `optimizer` of the model's module, if it has one."""
    return getattr(_module(name), "optimizer", None)


def _as_they_are(manifest: Manifest, columns: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    taken = {manifest.label, *(feature.name for feature in manifest.inputs)}
    return {name: column for name, column in columns.items() if name in taken}


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
        raise UserError(f"--model {name}: {error}; a module of your own must be on Python's path") from None
