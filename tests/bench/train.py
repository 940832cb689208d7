"""Training `cnn`: our step loop through our reader against Keras `fit` with the same data in memory."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from components.convert.convert import convert
from components.convert.options import Options
from trainer import records
from trainer.manifest import Manifest
from trainer.models import cnn
from trainer.steps import SyncSteps, TrainStep

BATCH, STEPS = 128, 150


def contestants() -> Mapping[str, Callable[[], float]]:
    """The digits, blown up to MNIST's 28 x 28 by repeating pixels."""
    directory = f"{tempfile.mkdtemp()}/digits"
    convert(Options(output=directory))
    manifest = Manifest.load(directory)
    columns = records.resident(manifest, directory, "train")
    images = np.repeat(np.repeat(columns["image"].numpy(), 4, axis=1), 4, axis=2)[:, 2:-2, 2:-2]
    columns["image"] = tf.constant(images)
    image = dataclasses.replace(manifest.feature("image"), shape=(28, 28, 1))
    manifest = dataclasses.replace(manifest, features=(image, manifest.feature("label")))

    def new_model() -> tuple[keras.Model, keras.optimizers.Optimizer]:
        model, optimizer = cnn.build(manifest), keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        model, optimizer = new_model()
    step = TrainStep(model=model, optimizer=optimizer, label="label", examples=len(images), global_batch=BATCH, seed=0)
    loop = SyncSteps(strategy, step, columns, True)
    fitted, fit_optimizer = new_model()
    fitted.compile(fit_optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    labels = columns["label"].numpy()
    take = np.random.default_rng(0).integers(0, len(images), BATCH * STEPS)
    x, y = images[take], labels[take]

    def ours() -> float:
        done = 0
        while done < STEPS:
            done += loop.run(done, STEPS, False).steps
        return STEPS * BATCH

    def fit() -> float:
        fitted.fit({"image": x}, y, batch_size=BATCH, epochs=1, verbose=0)
        return STEPS * BATCH

    return {"our step loop and reader": ours, "keras fit, data in memory": fit}
