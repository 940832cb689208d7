"""Scores an exported model on one split of a dataset, each record once.

records = EvalSet.load("data/mnist", "test")
predict(load("jobs/m/model", records), records).measure()["accuracy"]
"""

import dataclasses
from typing import Self

import numpy as np
import tensorflow as tf

from common.errors import UserError
from common.provenance import SERVING_DEFAULT
from components.evaluate.checks import check_column
from components.evaluate.eval_set import EvalSet
from components.predict.model import Model


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """A model's answers to some records of a split, with the labels of these records.

    Attributes:
      records: The split.
      positions: Positions of the records in the split, int64 [N].
      answers: The first of the task's answers, [N, outputs].
      labels: Labels as the dataset has them, [N] or [N, targets].
    """

    records: EvalSet
    positions: np.ndarray
    answers: np.ndarray
    labels: np.ndarray

    def of(self, chosen: np.ndarray) -> Self:
        """Returns the answers to some of the records.

        Args:
          chosen: Mask, bool [N], or indices into these answers, int64 [M].
        """
        arrays = {name: getattr(self, name)[chosen] for name in ("positions", "answers", "labels")}
        return dataclasses.replace(self, **arrays)

    def measure(self) -> dict[str, float]:
        """Returns the task's metrics of these answers by name.

        A metric that these labels do not define, such as `auc` if all have one class, is missing.
        """
        return self.records.task.measure(self.answers, self.labels)

    def figures(self) -> dict[str, float]:
        """Returns the metrics of `measure` by name, and the number of records as `examples`."""
        return {**self.measure(), "examples": len(self.labels)}

    def column(self, name: str) -> np.ndarray:
        """Returns the values of a column of a table for these records, [N]; texts are bytes.

        For the label of a classification, also of images, these are the names of the classes, str.

        Raises:
          UserError: If the dataset has no such column, if it is the label of another task, or if
            the split cannot be read.
          ConnectionError: If a store does not answer.
        """
        manifest = self.records.manifest
        check_column(name, manifest)
        if name == manifest.label:
            return np.array(manifest.class_names, object)[self.labels]
        return self.records.columns[name][self.positions]


def predict(model: Model, records: EvalSet) -> Answers:
    """Returns a model's answers to all records of a split, each asked once.

    Args:
      model: Model that takes the dataset's features, and gives the task's answers.
      records: The split.

    Raises:
      UserError: If an answer is not finite, if the model has other class names than the dataset, if
        it refuses a record, or if the split is empty or damaged.
      ConnectionError: If a store does not answer.
    """
    manifest, main = records.manifest, records.task.answers[0]
    answers, labels = [], []
    names = np.array([name.encode() for name in manifest.class_names], object)
    for columns in records.batches():
        served = model.ask(SERVING_DEFAULT, {f.name: columns[f.name] for f in manifest.inputs})
        answers.append(served[main])
        labels.append(columns[manifest.label].numpy())
        if not np.isfinite(answers[-1]).all():
            raise UserError(
                f"{model.directory} answers with {main} that are not finite: its training diverged"
            )
        # A model that was trained with other classes, or with these in another order, gives other
        # names for the same numbers.
        if len(names):
            expected, named = names[answers[-1].argmax(axis=1)], served["class_name"]
            for wrong in np.flatnonzero(named != expected)[:1]:
                raise UserError(
                    f"{model.directory} says {named[wrong].decode()!r} where dataset "
                    f"{manifest.name!r} has {expected[wrong].decode()!r}: it was trained on other "
                    "data"
                )
    arrays = {"answers": np.concatenate(answers), "labels": np.concatenate(labels)}
    return Answers(records=records, positions=np.arange(len(records)), **arrays)


def load(model_dir: str, records: EvalSet) -> Model:
    """Loads a SavedModel that fits a dataset.

    Raises:
      UserError: If there is no readable SavedModel, or if its signature `serving_default` does not
        take the dataset's features, does not give the task's answers, or gives another number of
        classes or targets.
      ConnectionError: If a store does not answer.
    """
    manifest, task = records.manifest, records.task
    model = Model(model_dir)
    serve = model.signatures.get(SERVING_DEFAULT)
    outputs = serve.structured_outputs if serve else {}
    if missing := set(task.answers) - set(outputs):
        raise UserError(
            f"{model_dir}: signature serving_default does not give {' and '.join(sorted(missing))}"
        )
    wanted = {f.name: f"{f.dtype}{tf.TensorShape([None, *f.shape])}" for f in manifest.inputs}
    takes = {
        name: f"{spec.dtype.name}{spec.shape}"
        for name, spec in model.inputs(SERVING_DEFAULT).items()
    }
    if takes != wanted:
        raise UserError(
            f"{model_dir} takes {takes}; dataset {manifest.name!r} has {wanted}: it was trained "
            "on other data"
        )
    if (known := outputs[task.answers[0]].shape[-1]) != manifest.outputs:
        what = "classes" if manifest.class_names else "targets"
        raise UserError(
            f"{model_dir} knows {known} {what}; dataset {manifest.name!r} has {manifest.outputs}"
        )
    return model
