"""The loss of every step, and the weights that come of them, are those of Keras' training."""

import keras
import numpy as np
import own_models
import pytest
import tensorflow as tf

from common.manifest import Manifest
from trainer import learning
from trainer.options import parse
from trainer.tasks.of_dataset import Classification
from trainer.train_step import TrainStep

pytestmark = pytest.mark.cluster
BATCH, STEPS = 128, 50
L2 = keras.regularizers.L2(0.01)
SGD = ["--optimizer", "sgd", "--learning-rate", "0.05"]


def dense(manifest: Manifest) -> keras.Model:
    layers = [
        keras.layers.Rescaling(1 / 16),
        keras.layers.Flatten(),
        keras.layers.Dense(24, kernel_regularizer=L2),
    ]
    return keras.Sequential(
        [keras.Input((8, 8, 1)), *layers, keras.layers.Dense(10, kernel_regularizer=L2)]
    )


def frozen(manifest: Manifest) -> keras.Model:
    model = dense(manifest)
    model.layers[-1].trainable = False  # whose regulariser then counts for nothing
    return model


def sgd(**options) -> keras.Optimizer:
    return keras.optimizers.SGD(0.05, 0.9, **options)


def adamw() -> keras.Optimizer:
    optimizer = keras.optimizers.AdamW(0.003, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


@pytest.mark.parametrize(
    ("make", "flags", "optimizer"),
    [
        (dense, SGD, sgd()),
        (frozen, SGD, sgd()),
        (own_models.penalised, SGD, sgd()),
        (dense, [*SGD, "--clip-norm", "0.1"], sgd(global_clipnorm=0.1)),
        (
            dense,
            ["--optimizer", "adamw", "--learning-rate", "0.003", "--weight-decay", "0.5"],
            adamw(),
        ),
        (dense, [*SGD, "--jit-compile"], sgd()),
    ],
    ids=["l2", "frozen", "penalised", "clipped", "adamw", "compiled"],
)
def test_fifty_steps(digits, make, flags, optimizer):
    manifest, draw = Manifest.load(digits), np.random.default_rng(0)
    images = draw.integers(0, 17, (STEPS, BATCH, 8, 8, 1)).astype(np.uint8)
    labels = draw.integers(0, 10, (STEPS, BATCH))
    keras.utils.set_random_seed(0)
    ours, theirs = make(manifest), make(manifest)
    ours.set_weights(theirs.get_weights())
    theirs.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    step = step_of(ours, manifest, flags)
    function = tf.function(
        lambda image, label, i: step({"image": image, "label": label}, i, 0, BATCH)[0]
    )
    concrete = function.get_concrete_function(images[0], labels[0], tf.constant(0, tf.int64))
    compiled = [f.attr["_XlaMustCompile"].b for f in concrete.graph.as_graph_def().library.function]
    assert any(compiled) == ("--jit-compile" in flags)
    found, expected = [], []
    for i in range(STEPS):
        found.append(float(function(images[i], labels[i], tf.constant(i, tf.int64))))
        expected.append(theirs.train_on_batch(images[i], labels[i]))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    plain = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(
        labels[-1], ours(images[-1], training=True)
    )
    assert found[-1] - float(plain) > 0.01


def step_of(model: keras.Model, manifest: Manifest, flags: list[str]) -> TrainStep:
    """The step that the trainer takes with these flags."""
    opts = parse(
        ["--data-dir", "d", "--job-dir", "j", "--train-steps", "50", "--model", "cnn", *flags], {}
    )
    optimizer = learning.optimizer(
        opts, model, manifest, learning.TrainingSize(examples=1000, batch=BATCH, horizon=STEPS)
    )
    image = keras.Input((8, 8, 1), dtype="uint8", name="image")
    weight_decay, decayed = learning.decay(opts, model)
    return TrainStep(
        model=keras.Model({"image": image}, model(image)),
        optimizer=optimizer,
        task=Classification(manifest.class_names),
        label="label",
        global_batch=BATCH,
        seed=0,
        weight_decay=weight_decay,
        decayed=decayed,
        jit_compile=opts.jit_compile,
    )
