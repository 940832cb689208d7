"""The loss with weights of classes, as Keras has it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from common.manifest import Manifest, Split
from trainer.data import example_weights
from trainer.tasks.of_dataset import Binary, Classification

EXAMPLES, DRAW, K = 1600, np.random.default_rng(0), keras.losses
X = DRAW.normal(size=(EXAMPLES, 3)).astype(np.float32)
NEAR = X + DRAW.normal(size=X.shape).astype(np.float32)
CLASS, YES = (NEAR + np.arange(3)).argmax(axis=1), (NEAR[:, 0] > 0).astype(np.int64)
FIELDS = {
    "name": "made",
    "origin": "made up",
    "features": (),
    "record_bytes": None,
    "arguments": {},
}
SPLITS = {"train": Split(examples=EXAMPLES, class_histogram=(), shards=())}
CLASSES = Classification(("a", "b", "c"))
KLD = Classification(
    ("a", "b", "c"),
    loss=lambda labels, outputs: K.kl_divergence(tf.one_hot(labels, 3), tf.nn.softmax(outputs)),
)
# Task and labels; Keras' loss; the flag, and the weights of all classes.
CASES = {
    "classes": (
        CLASSES,
        CLASS,
        K.SparseCategoricalCrossentropy(True),
        ("a=0.1", "c=2.5"),
        [0.1, 1, 2.5],
    ),
    "one logit": (Binary(("no", "yes")), YES, K.BinaryCrossentropy(True), ("yes=3",), [1, 3]),
    "own loss": (KLD, CLASS, K.SparseCategoricalCrossentropy(True), ("b=2",), [1, 2, 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_weighted_loss_agrees_with_keras(name):
    task, labels, loss, pairs, weights = CASES[name]
    names = ("a", "b", "c") if len(weights) == 3 else ("no", "yes")
    manifest = Manifest(label="label", class_names=names, splits=SPLITS, **FIELDS)
    outputs = tf.constant(X[:, : task.outputs])
    columns = example_weights.weighted(dict, manifest, pairs)({"label": tf.constant(labels)})
    total, divisor = task.loss_sum(columns["label"], outputs, columns[example_weights.WEIGHT])
    assert divisor is None
    expected = loss(labels.reshape(EXAMPLES, -1), outputs, np.array(weights)[labels])
    assert float(total) / EXAMPLES == pytest.approx(float(expected), rel=1e-5)
