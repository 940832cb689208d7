"""The loss with smoothed labels and with weights of examples, as Keras' `fit` has it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.base.errors import UserError
from trainer.nn.tasks.base import Task
from trainer.nn.tasks.classification import Binary, Classification
from trainer.nn.tasks.multi_label import MultiLabel
from trainer.nn.tasks.own import Own
from trainer.nn.tasks.regression import Regression
from trainer.steps import TrainStep

BATCH, STEPS, ABC = 32, 50, ("a", "b", "c")
EXAMPLES = BATCH * STEPS
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(EXAMPLES, 6)).astype(np.float32)
LABELS = {
    "classes": (X[:, :3] + DRAW.normal(size=(EXAMPLES, 3))).argmax(axis=1),
    "two": (X[:, 0] + DRAW.normal(size=EXAMPLES) > 0).astype(np.int64),
    "several": (X[:, :3] + DRAW.normal(size=(EXAMPLES, 3)) > 0).astype(np.int64),
    "number": X[:, 0] + DRAW.normal(size=EXAMPLES).astype(np.float32),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    task: Task
    labels: str
    loss: keras.losses.Loss
    as_keras_has_them: Callable[[np.ndarray], np.ndarray] = np.asarray


CASES = {
    "smoothed classes": Case(
        task=Classification(ABC).smoothed(0.2),
        labels="classes",
        loss=keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2),
        as_keras_has_them=lambda labels: np.eye(3)[labels],
    ),
    "one smoothed logit": Case(
        task=Binary(("no", "yes")).smoothed(0.1),
        labels="two",
        loss=keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1),
        as_keras_has_them=lambda labels: labels[:, None],
    ),
    "smoothed labels": Case(
        task=Own(MultiLabel(ABC)).smoothed(0.3),
        labels="several",
        loss=keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.3),
    ),
}


class Losses(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.model.reset_metrics()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(float(logs["loss"]))


def network(outputs: int) -> keras.Model:
    x = keras.Input((6,), name="x")
    return keras.Model({"x": x}, keras.layers.Dense(outputs)(keras.layers.Dense(8, "tanh")(x)))


@pytest.mark.parametrize("name", CASES)
def test_the_loss_of_fifty_steps_is_that_of_keras_fit(name):
    case, fitted = CASES[name], Losses()
    ours, theirs = network(case.task.outputs), network(case.task.outputs)
    ours.set_weights(theirs.get_weights())
    theirs.compile(keras.optimizers.SGD(0.1, 0.9), case.loss, jit_compile=False)
    labels = LABELS[case.labels]
    theirs.fit({"x": X}, case.as_keras_has_them(labels), batch_size=BATCH, shuffle=False, verbose=0, callbacks=[fitted])
    optimizer = keras.optimizers.SGD(0.1, 0.9)
    optimizer.build(ours.trainable_variables)
    step = TrainStep(model=ours, optimizer=optimizer, task=case.task, label="label", global_batch=BATCH, seed=0)
    function = tf.function(lambda batch: step(batch, tf.constant(0, tf.int64), 0, BATCH)[0])
    columns = {"x": X, "label": labels}
    found = [
        float(function({name: column[i : i + BATCH] for name, column in columns.items()}))
        for i in range(0, EXAMPLES, BATCH)
    ]
    np.testing.assert_allclose(found, fitted.seen, rtol=1e-5)
    plain = case.task.smoothed(0.0) if case.task.label_smoothing else case.task
    last = [tf.constant(column[-BATCH:]) for column in (X, labels)]
    unweighted = plain.sums(ours({"x": last[0]}), last[1])
    assert abs(found[-1] - float(unweighted[0]) / BATCH) > 0.01  # it made a difference


def test_of_smoothed_labels_metrics_and_what_is_measured_of_the_export_are_those_of_the_labels():
    task, outputs, labels = Classification(ABC), tf.constant(X[:, :3]), LABELS["classes"]
    loss, hits = (float(value) for value in task.smoothed(0.2).sums(outputs, labels))
    assert hits == float(task.sums(outputs, labels)[1]) and loss > 1.01 * float(task.sums(outputs, labels)[0])
    answers = task.answer(outputs)["probabilities"].numpy()
    assert task.smoothed(0.2).measure(answers, labels) == task.measure(answers, labels)


class Focal(Classification):
    def losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        losses = super().losses(outputs, labels)
        return (1 - tf.exp(-losses)) ** 2 * losses


@pytest.mark.parametrize(
    "task",
    [
        Regression(("a",), (1.0,)),
        Own(Classification(ABC), loss=keras.losses.SparseCategoricalCrossentropy(reduction="none")),
        Focal(ABC),
        Own(Focal(ABC)),
    ],
)
def test_labels_are_not_smoothed_where_nothing_would_heed_it(task):
    with pytest.raises(UserError, match="--label-smoothing is for classes and labels"):
        task.smoothed(0.1)
