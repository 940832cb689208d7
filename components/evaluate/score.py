"""Scores an exported model on one split of a dataset, each record once.

answered = predict_split("jobs/m/model", "data/mnist", "test", task)
measure(answered, task, classes=10)["metrics"]["accuracy"]
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import tensorflow as tf

from components.evaluate.answered import Sample
from trainer.base import provenance, roc
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest
from trainer.data import records
from trainer.nn.tasks.base import Task

_BATCH = 512


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What a model has answered for the records of a split, in their order, and what is true of each.

    Attributes:
      answers: The first of the task's answers, [N, outputs].
      labels: As the dataset has them, [N] or [N, targets].
      records: Which of the split's they are: positions [N].
      sample: Some of the records, with the answers to them, as `evaluation.json` keeps them; None of a part of a split.
    """

    answers: np.ndarray
    labels: np.ndarray
    records: np.ndarray
    sample: dict[str, Any] | None = None

    def of(self, chosen: np.ndarray) -> Self:
        """Those of some of the records: a mask [N], or positions [M]."""
        taken = (each[chosen] for each in (self.answers, self.labels, self.records))
        return type(self)(**dict(zip(("answers", "labels", "records"), taken, strict=True)))


def predict_split(model_dir: str, data_dir: str, split: str, task: Task) -> Answers:
    """Loads the SavedModel and has it answer for every record of a split of the dataset, once.

    Raises:
      UserError: If there is no such model or split, or the model is made for other data.
    """
    manifest = Manifest.load(data_dir)
    predict = load_predictor(model_dir, manifest, task)
    is_ours = provenance.trained_on(model_dir) is not None  # and so knows what is missing
    sample = Sample(manifest, examples=manifest.split(split).examples, raw=is_ours)
    answers, labels = [], []
    for columns in records.batches(manifest, data_dir, split, _BATCH):
        answers.append(predict({feature.name: columns[feature.name] for feature in manifest.inputs}))
        labels.append(columns[manifest.label].numpy())
        sample.add(columns)
    return Answers(
        answers=np.concatenate(answers),
        labels=(labels := np.concatenate(labels)),
        records=np.arange(len(labels)),
        sample=sample.answered(predict, task.answers[0]),
    )


def measure(answered: Answers, task: Task, classes: int) -> dict[str, Any]:
    """The score of answers by a task of so many classes, 0 if of none.

    Returns:
      `metrics`: those of the task, over `examples`. `confusion`: of classes, examples by [true class][predicted class].
      `roc`: of two classes false positive rate, true positive rate, and the least probability that counts as positive.
      What there is not is None.
    """
    answers, labels = answered.answers, answered.labels
    metrics, confusion, curve = task.measure(answers, labels), None, None
    if classes:
        cells = labels * classes + answers.argmax(axis=1)
        confusion = np.bincount(cells, minlength=classes * classes).reshape(classes, classes).tolist()
        if classes == 2 and len(np.unique(labels)) == 2:
            curve = np.minimum(np.stack(roc.curve(answers[:, 1], labels == 1), axis=1), 1.0).tolist()
    return {"metrics": {**metrics, "examples": len(labels)}, "confusion": confusion, "roc": curve}


def load_predictor(model_dir: str, manifest: Manifest, task: Task) -> Callable[[dict[str, tf.Tensor]], np.ndarray]:
    """A function from features by name [N, ...] to the first of the task's answers, [N, outputs], by a SavedModel.

    It raises UserError, as this does, for a model that is not there or does not answer for these features and this task.
    """
    try:
        if not tf.saved_model.contains_saved_model(model_dir):
            raise UserError(f"{model_dir}: no SavedModel here (a finished training job writes one to <job-dir>/model)")
        model = tf.saved_model.load(model_dir)
    except (OSError, tf.errors.OpError) as error:
        raise UserError(f"{model_dir}: the model cannot be read ({' '.join(str(error).split())})") from None
    serve = model.signatures.get("serving_default")
    given = serve.structured_outputs if serve else {}
    if missing := set(task.answers) - set(given):
        raise UserError(f"{model_dir}: signature serving_default does not give {' and '.join(sorted(missing))}")
    features = manifest.inputs
    wanted = {f.name: f"{f.dtype}{tf.TensorShape([None, *f.shape])}" for f in features}
    takes = {name: f"{spec.dtype.name}{spec.shape}" for name, spec in serve.structured_input_signature[1].items()}
    if takes != wanted:
        raise UserError(
            f"{model_dir} takes {takes}; dataset {manifest.name!r} has {wanted}: it was trained on other data"
        )
    main = task.answers[0]
    if (outputs := given[main].shape[-1]) != manifest.outputs:
        what = "classes" if manifest.class_names else "targets"
        raise UserError(f"{model_dir} knows {outputs} {what}; dataset {manifest.name!r} has {manifest.outputs}")
    names = np.array([name.encode() for name in manifest.class_names], object)

    def predict(features: dict[str, tf.Tensor], _keep_alive: object = model) -> np.ndarray:
        answered = serve(**features)
        answers = answered[main].numpy()
        if not np.isfinite(answers).all():
            raise UserError(f"{model_dir} answers with {main} that are not finite: its training diverged")
        if len(names):
            expected, said = names[answers.argmax(axis=1)], answered["class_name"].numpy()
            if (said != expected).any():
                wrong = (said != expected).argmax()
                raise UserError(
                    f"{model_dir} says {said[wrong].decode()!r} where dataset {manifest.name!r} has "
                    f"{expected[wrong].decode()!r}: it was trained on other data"
                )
        return answers

    return predict
