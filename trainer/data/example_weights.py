"""Weights of training examples in the loss, by their class (`--class-weights`).

    prepare = weighted(build.prepare, manifest, ("rare=5",))
    prepare(columns)[WEIGHT]  # float32 [N], beside the model's inputs

Validation and evaluation count every example once. Imports TensorFlow only to compute.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from common.errors import UserError, unknown
from common.manifest import Manifest

Prepare = Callable[[Mapping[str, Any]], dict[str, Any]]  # From and to tensors by name.
WEIGHT = "/weight"  # Key among the columns of a batch; no feature has such a name.


def class_weights(pairs: Sequence[str], manifest: Manifest) -> tuple[float, ...]:
    """Returns the weight of each class, in the order of the classes; 1 for a class without a pair.

    Args:
      pairs: Texts `CLASS=WEIGHT` with a number as the weight; the last one of a class counts.
      manifest: Manifest of the dataset.

    Raises:
      UserError: If the dataset has no classes, or no class of such a name.
    """
    if not manifest.class_names:
        raise UserError(
            f"--class-weights is for classes; dataset {manifest.name!r} is for {manifest.task}; "
            "leave it out"
        )
    weights = dict.fromkeys(manifest.class_names, 1.0)
    for pair in pairs:
        name, _, weight = pair.rpartition("=")
        if name not in weights:
            raise unknown("--class-weights", name, manifest.class_names)
        weights[name] = float(weight)
    return tuple(weights.values())


def weighted(prepare: Prepare, manifest: Manifest, pairs: Sequence[str] | None) -> Prepare:
    """Returns a function like `prepare` that adds the examples' weights as the column `WEIGHT`.

    The columns that it takes must include the label.

    Args:
      prepare: Makes the model's inputs from the dataset's columns.
      manifest: Manifest of the dataset.
      pairs: Texts `CLASS=WEIGHT`; without any, `prepare` itself is returned.

    Raises:
      UserError: If the dataset has no classes, or no class of such a name.
    """
    if not pairs:
        return prepare
    weights = class_weights(pairs, manifest)

    def prepare_weighted(columns: Mapping[str, Any]) -> dict[str, Any]:
        import tensorflow as tf

        return {
            **prepare(columns),
            WEIGHT: tf.gather(tf.constant(weights), columns[manifest.label]),
        }

    return prepare_weighted
