"""How much each training example counts in the loss: by its class, by a column of the table, or by the product of both.

    prepare = weighed(build.prepare, manifest, classes=("rare=5",), column="importance")
    prepare(columns)[WEIGHT]  # float32 [N], beside what the model takes

It is found out where columns are prepared: once, of a split that is resident in memory. In validation only weighted metrics
go by it; evaluation counts every example once. Imports TensorFlow only to compute.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from common.errors import UserError, unknown
from common.manifest import Manifest

if TYPE_CHECKING:
    import tensorflow as tf

    Prepare = Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]

WEIGHT = "/weight"  # among the columns of a batch, where no feature has such a name
BALANCED = "balanced"


def class_weights(given: Sequence[str], manifest: Manifest) -> tuple[float, ...]:
    """The weight of each class, in their order; refused if there is none by a name, or no example would count.

    Given is `balanced`, as scikit-learn's `compute_class_weight` defines it: examples / (classes * examples of the class),
    of the training split; or some of `CLASS=WEIGHT`, where the others weigh 1.
    """
    if not manifest.class_names:
        raise UserError(
            f"--class-weights is for classes; dataset {manifest.name!r} is for {manifest.task}; leave it out"
        )
    counts = manifest.split("train").class_histogram
    if list(given) == [BALANCED]:
        each = sum(counts) / sum(count > 0 for count in counts)
        return tuple(each / count if count else 0.0 for count in counts)
    weights = dict.fromkeys(manifest.class_names, 1.0)
    for name, _, weight in (pair.rpartition("=") for pair in given):
        if name not in weights:
            raise unknown("--class-weights", name or weight, manifest.class_names)
        weights[name] = float(weight)
    if not any(weight * count for weight, count in zip(weights.values(), counts, strict=True)):
        raise UserError("--class-weights: no training example has a class that weighs more than 0")
    return tuple(weights.values())


def check_column(name: str, manifest: Manifest) -> None:
    """Refuses a column that is not of numbers, that a model takes, or of which a number is negative or all are 0."""
    numbers = {
        f.name: f for f in manifest.features if f.name != manifest.label and f.statistics and f.dtype != "string"
    }
    check_name(name, manifest.name, numbers=numbers, inputs=[feature.name for feature in manifest.inputs])
    known = numbers[name].statistics
    stand_in = numbers[name].default if known.missing else None
    extremes = [value for value in (known.min, known.max, stand_in) if value is not None]
    if min(extremes) < 0:
        raise UserError(f"--weight-column {name}: a training example weighs {min(extremes):g}; weights are at least 0")
    if not max(extremes):
        raise UserError(f"--weight-column {name}: no training example weighs more than 0")


def check_name(name: str, dataset: str, *, numbers: Collection[str], inputs: Collection[str]) -> None:
    """Refuses a weight column that is not among the columns of numbers of a dataset, or is an input of the model."""
    if name not in numbers:
        raise UserError(
            f"--weight-column {name}: dataset {dataset!r} has no such column of numbers beside the label (it has "
            f"{', '.join(numbers) or 'none'})"
        )
    if name in inputs:
        raise UserError(
            f"--weight-column {name}: the model takes it, so clients would have to send it; leave it out of deep and wide "
            "in the schema, and convert again"
        )


def weighed(prepare: "Prepare", manifest: Manifest, *, classes: Sequence[str] | None, column: str | None) -> "Prepare":
    """What prepares the dataset's columns for a model, giving the weights of the examples too, if there are any.

    `prepare` does so without, and does not see the column of weights, which `check_column` accepts.
    """
    if not classes and not column:
        return prepare
    of_classes = classes and class_weights(classes, manifest)

    def both(columns: "Mapping[str, tf.Tensor]") -> "dict[str, tf.Tensor]":
        import tensorflow as tf

        factors, columns = [], dict(columns)
        if of_classes:
            factors.append(tf.gather(tf.constant(of_classes, tf.float32), columns[manifest.label]))
        if column:
            factors.append(tf.cast(columns.pop(column), tf.float32))
        return {**prepare(columns), WEIGHT: tf.reduce_prod(tf.stack(factors), axis=0)}

    return both
