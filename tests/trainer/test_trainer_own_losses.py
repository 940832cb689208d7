"""What a model adds to the loss, as Keras' `fit` has it."""

import keras
import numpy as np
import own_models
import pytest
import tensorflow as tf

from trainer.base.manifest import Manifest
from trainer.nn.tasks.classification import Classification
from trainer.steps import TrainStep

BATCH, STEPS = 32, 50
L2 = keras.regularizers.L2(0.01)


def dense(manifest: Manifest) -> keras.Model:
    layers = [keras.layers.Rescaling(1 / 16), keras.layers.Flatten(), keras.layers.Dense(24, kernel_regularizer=L2)]
    return keras.Sequential([keras.Input((8, 8, 1)), *layers, keras.layers.Dense(10, kernel_regularizer=L2)])


def frozen(manifest: Manifest) -> keras.Model:
    model = dense(manifest)
    model.layers[-1].trainable = False  # whose regulariser then counts for nothing
    return model


@pytest.mark.parametrize("make", [dense, frozen, own_models.penalised], ids=lambda make: make.__name__)
def test_the_loss_of_fifty_steps_is_that_of_keras_fit(digits, make):
    manifest, draw = Manifest.load(digits), np.random.default_rng(0)
    images = draw.integers(0, 17, (STEPS, BATCH, 8, 8, 1)).astype(np.uint8)
    labels = draw.integers(0, 10, (STEPS, BATCH))
    ours, theirs = make(manifest), make(manifest)
    ours.set_weights(theirs.get_weights())
    theirs.compile(keras.optimizers.SGD(0.05, 0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    optimizer = keras.optimizers.SGD(0.05, 0.9)
    optimizer.build(ours.trainable_variables)
    image, task = keras.Input((8, 8, 1), dtype="uint8", name="image"), Classification(manifest.class_names)
    named = keras.Model({"image": image}, ours(image))
    step = TrainStep(model=named, optimizer=optimizer, task=task, label="label", global_batch=BATCH, seed=0)
    function = tf.function(lambda image, label, i: step({"image": image, "label": label}, i, 0, BATCH)[0])
    found, expected = [], []
    for i in range(STEPS):
        found.append(float(function(images[i], labels[i], tf.constant(i, tf.int64))))
        fit = theirs.fit(images[i], labels[i], batch_size=BATCH, verbose=0)
        expected.append(fit.history["loss"][0])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    plain = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels[-1], ours(images[-1], training=True))
    assert found[-1] - float(plain) > 0.01
