"""The loss with smoothed labels and with weights of examples, as Keras' `fit` has it."""

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

pytestmark = pytest.mark.cluster
BATCH, STEPS, K = 32, 50, keras.losses
EXAMPLES, DRAW = BATCH * STEPS, np.random.default_rng(0)
X, NOISE = (DRAW.normal(size=(EXAMPLES, 6)).astype(np.float32) for _ in "XN")
IMPORTANCE = DRAW.choice([0.0, 0.5, 1.0, 4.0], EXAMPLES).astype(np.float32)
A, AB, ABC = (X[:, :n] + NOISE[:, :n] for n in (1, 2, 3))
CLASS, SEVERAL = (ABC + np.arange(3)).argmax(axis=1), (ABC > 0).astype(np.int64)
TWO, NUMBER = AB.argmax(axis=1), A[:, 0]
COUNTS = np.bincount(CLASS)
BALANCED = EXAMPLES / (3 * COUNTS)
SPLITS = {"train": Split(examples=EXAMPLES, class_histogram=tuple(COUNTS.tolist()), shards=())}
SAID = {"name": "made", "origin": "made up", "features": (), "record_bytes": None, "arguments": {}}
MANIFEST = Manifest(label="label", class_names=("a", "b", "c"), splits=SPLITS, **SAID)
CLASSES, LOGIT, LABELS = Classification(("a", "b", "c")), Binary(("no", "yes")), MultiLabel(("a", "b", "c"))
REGRESSION, SPARSE = Regression(("a",), (1.0,)), K.SparseCategoricalCrossentropy(from_logits=True)
HUBER = Own(REGRESSION, loss=lambda labels, outputs: K.huber(labels[:, None], outputs))
BY = {"sample_weight": IMPORTANCE}
# Task and labels; Keras' loss, and what its `fit` is given; the flags, and whether a column weighs.
CASES = {
    "smoothed classes": (CLASSES.smoothed(0.2), CLASS, K.CategoricalCrossentropy(True, 0.2), {}, (), False),
    "one smoothed logit": (LOGIT.smoothed(0.1), TWO, K.BinaryCrossentropy(True, 0.1), {}, (), False),
    "smoothed labels": (Own(LABELS).smoothed(0.3), SEVERAL, K.BinaryCrossentropy(True, 0.3), {}, (), False),
    "classes": (CLASSES, CLASS, SPARSE, {"class_weight": {0: 0.0, 2: 2.5}}, ("a=0", "c=2.5"), False),
    "both": (CLASSES, CLASS, SPARSE, {"sample_weight": IMPORTANCE * BALANCED[CLASS]}, ("balanced",), True),
    "a column for a loss of one's own": (HUBER, NUMBER, K.Huber(), BY, (), True),
}


def network(task: Task) -> keras.Model:
    x = keras.Input((6,), name="x")
    drawn = keras.initializers.RandomNormal(stddev=2.0, seed=0)  # sure of itself, so that smoothing makes a difference
    hidden = keras.layers.Dense(8, "tanh")(x)
    return keras.Model({"x": x}, keras.layers.Dense(task.outputs, kernel_initializer=drawn)(hidden))


@pytest.mark.parametrize("name", CASES)
def test_the_loss_of_fifty_steps_is_that_of_keras_fit(name):
    task, labels, loss, fit, classes, by_column = CASES[name]
    keras.utils.set_random_seed(0)
    ours, theirs, expected = network(task), network(task), []
    ours.set_weights(theirs.get_weights())
    theirs.compile(keras.optimizers.SGD(0.1, 0.9), loss, jit_compile=False)
    each = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: theirs.reset_metrics(),
        on_train_batch_end=lambda batch, logs: expected.append(float(logs["loss"])),
    )
    truth = np.eye(3)[labels] if isinstance(loss, K.CategoricalCrossentropy) else labels.reshape(EXAMPLES, -1)
    theirs.fit({"x": X}, truth, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[each], **fit)
    plain = task.smoothed(0.0) if task.label_smoothing else task
    without = float(tf.reduce_mean(plain.losses(ours({"x": X[:BATCH]}), tf.constant(labels[:BATCH]))))
    optimizer = keras.optimizers.SGD(0.1, 0.9)
    optimizer.build(ours.trainable_variables)
    step = TrainStep(model=ours, optimizer=optimizer, task=task, label="label", global_batch=BATCH, seed=0)
    take = tf.function(lambda batch: step(batch, tf.constant(0, tf.int64), 0, BATCH)[0])
    columns = {"x": X, "label": labels, **({"importance": IMPORTANCE} if by_column else {})}
    prepare = weighing.weighed(dict, MANIFEST, classes=classes, column="importance" if by_column else None)
    found = [float(take(prepare(batch))) for batch in tf.data.Dataset.from_tensor_slices(columns).batch(BATCH)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(found) == STEPS and found[0] != pytest.approx(without, rel=1e-3)


def test_of_smoothed_labels_metrics_and_what_is_measured_of_the_export_are_those_of_the_labels():
    outputs, smoothed = tf.constant(X[:, :3]), CLASSES.smoothed(0.2)
    assert smoothed.states(outputs, CLASS) == CLASSES.states(outputs, CLASS)
    assert sum(smoothed.losses(outputs, CLASS)) > 1.01 * sum(CLASSES.losses(outputs, CLASS))
    answers = CLASSES.answer(outputs)["probabilities"].numpy()
    assert CLASSES.smoothed(0.2).measure(answers, CLASS) == CLASSES.measure(answers, CLASS)


class Focal(Classification):
    def losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        losses = super().losses(outputs, labels)
        return (1 - tf.exp(-losses)) ** 2 * losses


@pytest.mark.parametrize("task", [REGRESSION, HUBER, Focal(("a", "b")), Own(Focal(("a", "b")))])
def test_labels_are_not_smoothed_where_nothing_would_heed_it(task):
    with pytest.raises(UserError, match="--label-smoothing is for classes and labels"):
        task.smoothed(0.1)
