"""The loss with smoothed labels and with weights of examples, as Keras' `fit` has it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.base.errors import UserError
from trainer.base.manifest import Manifest, Split
from trainer.data import weighing
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
IMPORTANCE = DRAW.choice([0.0, 0.5, 1.0, 4.0], EXAMPLES).astype(np.float32)
LABELS = {
    "classes": (X[:, :3] + [0, 1, 2] + DRAW.normal(size=(EXAMPLES, 3))).argmax(axis=1),
    "two": (X[:, 0] + DRAW.normal(size=EXAMPLES) > 0).astype(np.int64),
    "several": (X[:, :3] + DRAW.normal(size=(EXAMPLES, 3)) > 0).astype(np.int64),
    "number": X[:, 0] + DRAW.normal(size=EXAMPLES).astype(np.float32),
}

COUNTS = np.bincount(LABELS["classes"])
BALANCED = EXAMPLES / (3 * COUNTS)
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
MANIFEST = Manifest(
    name="made",
    origin="made up",
    features=(),
    label="label",
    class_names=ABC,
    record_bytes=None,
    splits={"train": Split(examples=EXAMPLES, class_histogram=tuple(COUNTS.tolist()), shards=())},
    arguments={},
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    task: Task
    labels: str
    loss: keras.losses.Loss
    as_keras_has_them: Callable[[np.ndarray], np.ndarray] = np.asarray
    classes: tuple[str, ...] | None = None
    column: str | None = None
    given_to_fit: dict[str, Any] = dataclasses.field(default_factory=dict)


CASES = {
    "class weights": Case(
        task=Classification(ABC),
        labels="classes",
        loss=SPARSE,
        classes=("a=0", "c=2.5"),
        given_to_fit={"class_weight": {0: 0.0, 2: 2.5}},
    ),
    "balanced classes": Case(
        task=Classification(ABC),
        labels="classes",
        loss=SPARSE,
        classes=("balanced",),
        given_to_fit={"class_weight": dict(enumerate(BALANCED))},
    ),
    "balanced classes and a column": Case(
        task=Classification(ABC),
        labels="classes",
        loss=SPARSE,
        classes=("balanced",),
        column="importance",
        given_to_fit={"sample_weight": IMPORTANCE * BALANCED[LABELS["classes"]]},
    ),
    "a column for one logit": Case(
        task=Binary(("no", "yes")),
        labels="two",
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        as_keras_has_them=lambda labels: labels[:, None],
        column="importance",
        given_to_fit={"sample_weight": IMPORTANCE},
    ),
    "a column for a number": Case(
        task=Regression(("a",), (1.0,)),
        labels="number",
        loss=keras.losses.MeanSquaredError(),
        as_keras_has_them=lambda labels: labels[:, None],
        column="importance",
        given_to_fit={"sample_weight": IMPORTANCE},
    ),
    "a column for a loss of one's own": Case(
        task=Own(Regression(("a",), (1.0,)), loss=lambda labels, outputs: keras.losses.huber(labels[:, None], outputs)),
        labels="number",
        loss=keras.losses.Huber(),
        as_keras_has_them=lambda labels: labels[:, None],
        column="importance",
        given_to_fit={"sample_weight": IMPORTANCE},
    ),
    "a column for smoothed labels": Case(
        task=MultiLabel(ABC).smoothed(0.3),
        labels="several",
        loss=keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.3),
        column="importance",
        given_to_fit={"sample_weight": IMPORTANCE},
    ),
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
    drawn = keras.initializers.RandomNormal(stddev=2.0, seed=0)  # sure of itself, so that smoothing makes a difference
    return keras.Model(
        {"x": x}, keras.layers.Dense(outputs, kernel_initializer=drawn)(keras.layers.Dense(8, "tanh")(x))
    )


@pytest.mark.parametrize("name", CASES)
def test_the_loss_of_fifty_steps_is_that_of_keras_fit(name):
    case, fitted = CASES[name], Losses()
    keras.utils.set_random_seed(0)
    ours, theirs = network(case.task.outputs), network(case.task.outputs)
    ours.set_weights(theirs.get_weights())
    theirs.compile(keras.optimizers.SGD(0.1, 0.9), case.loss, jit_compile=False)
    labels = LABELS[case.labels]
    settings = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "callbacks": [fitted]}
    theirs.fit({"x": X}, case.as_keras_has_them(labels), **settings, **case.given_to_fit)
    plain = case.task.smoothed(0.0) if case.task.label_smoothing else case.task
    without = float(plain.sums(ours({"x": X[:BATCH]}), tf.constant(labels[:BATCH]))[0]) / BATCH
    optimizer = keras.optimizers.SGD(0.1, 0.9)
    optimizer.build(ours.trainable_variables)
    step = TrainStep(model=ours, optimizer=optimizer, task=case.task, label="label", global_batch=BATCH, seed=0)
    function = tf.function(lambda batch: step(batch, tf.constant(0, tf.int64), 0, BATCH)[0])
    batches = tf.data.Dataset.from_tensor_slices({"x": X, "label": labels, "importance": IMPORTANCE}).batch(BATCH)
    prepare = weighing.weighed(dict, MANIFEST, classes=case.classes, column=case.column)
    found = [float(function({n: c for n, c in prepare(batch).items() if n != "importance"})) for batch in batches]
    np.testing.assert_allclose(found, fitted.seen, rtol=1e-5)
    assert found[0] != pytest.approx(without, rel=1e-3)


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
