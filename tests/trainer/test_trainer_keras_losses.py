"""The loss with smoothed labels and with weights of examples, as Keras has it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest, Split
from trainer.data import example_weights
from trainer.tasks.classification import Binary, Classification
from trainer.tasks.multi_label import MultiLabel
from trainer.tasks.own import Own
from trainer.tasks.regression import Regression

EXAMPLES, DRAW, K = 1600, np.random.default_rng(0), keras.losses
X = DRAW.normal(size=(EXAMPLES, 3)).astype(np.float32)
IMPORTANCE = DRAW.choice([0.0, 0.5, 1.0, 4.0], EXAMPLES).astype(np.float32)
NEAR = X + DRAW.normal(size=X.shape).astype(np.float32)
CLASS, SEVERAL = (NEAR + np.arange(3)).argmax(axis=1), (NEAR > 0).astype(np.int64)
COUNTS = np.bincount(CLASS)
BALANCED = EXAMPLES / (3 * COUNTS)
SPLITS = {"train": Split(examples=EXAMPLES, class_histogram=tuple(COUNTS.tolist()), shards=())}
SAID = {"name": "made", "origin": "made up", "features": (), "record_bytes": None, "arguments": {}}
MANIFEST = Manifest(label="label", class_names=("a", "b", "c"), splits=SPLITS, **SAID)
CLASSES, LOGIT, LABELS = Classification(("a", "b", "c")), Binary(("no", "yes")), MultiLabel(("a", "b", "c"))
REGRESSION, SPARSE = Regression(("a",), (1.0,)), K.SparseCategoricalCrossentropy(from_logits=True)
HUBER = Own(REGRESSION, loss=lambda labels, outputs: K.huber(labels[:, None], outputs))
# Task and labels; Keras' loss and its weights; the flag of classes, and whether a column weighs.
CASES = {
    "smoothed classes": (CLASSES.smoothed(0.2), CLASS, K.CategoricalCrossentropy(True, 0.2), None, (), False),
    "one smoothed logit": (LOGIT.smoothed(0.1), SEVERAL[:, 0], K.BinaryCrossentropy(True, 0.1), None, (), False),
    "smoothed labels": (Own(LABELS).smoothed(0.3), SEVERAL, K.BinaryCrossentropy(True, 0.3), None, (), False),
    "classes": (CLASSES, CLASS, SPARSE, np.array([0, 1, 2.5])[CLASS], ("a=0", "c=2.5"), False),
    "both": (CLASSES, CLASS, SPARSE, IMPORTANCE * BALANCED[CLASS], ("balanced",), True),
    "a column for a loss of one's own": (HUBER, NEAR[:, 0], K.Huber(), IMPORTANCE, (), True),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_agrees_with_keras(name):
    task, labels, loss, importance, classes, by_column = CASES[name]
    outputs = tf.constant(4 * X[:, : task.outputs])  # sure of themselves, so that smoothing makes a difference
    columns = {"label": tf.constant(labels), **({"importance": tf.constant(IMPORTANCE)} if by_column else {})}
    prepare = example_weights.weighed(dict, MANIFEST, classes=classes, column="importance" if by_column else None)
    total, divisor = task.loss_sum(outputs, columns["label"], prepare(columns).get(example_weights.WEIGHT))
    truth = np.eye(3)[labels] if isinstance(loss, K.CategoricalCrossentropy) else labels.reshape(EXAMPLES, -1)
    assert divisor is None
    assert float(total) / EXAMPLES == pytest.approx(float(loss(truth, outputs, importance)), rel=1e-5)
    plain = task.smoothed(0.0) if task.label_smoothing else task
    assert float(total) != pytest.approx(float(tf.reduce_sum(plain.losses(outputs, columns["label"]))), rel=1e-3)


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
