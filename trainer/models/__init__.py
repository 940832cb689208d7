"""The models by name. Their modules are imported when they are asked for, because they import TensorFlow."""

from __future__ import annotations

import importlib
from types import ModuleType

NAMES = ("cnn",)


def load(name: str) -> ModuleType:
    """The module of a model: `build(manifest) -> keras.Model` from raw features to logits, OPTIMIZER, LEARNING_RATE."""
    return importlib.import_module(f"trainer.models.{name}")
