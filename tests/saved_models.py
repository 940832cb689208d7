"""Models whose answers are known by construction, and a small dataset for them."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import TYPE_CHECKING

import pytest

from common.manifest import Manifest

if TYPE_CHECKING:
    import numpy as np


ANSWERS = "probabilities", "class_index", "class_name"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset:
    """A converted dataset, and its test split."""

    path: pathlib.Path
    manifest: Manifest
    images: np.ndarray  # [N, height, width, 1], uint8, no two alike.
    labels: np.ndarray  # [N].


@pytest.fixture(scope="session")
def scored(digits):
    """The embedded digits."""
    from trainer.data import records

    manifest = Manifest.load(digits)
    columns = records.load(manifest, str(digits), "test")
    images, labels = columns["image"].numpy(), columns["label"].numpy()
    return Dataset(path=digits, manifest=manifest, images=images, labels=labels)


def save_model(directory, inputs, class_names, probabilities, outputs=ANSWERS):
    """Saves a model whose probabilities are what a function gives for the inputs by name."""
    import tensorflow as tf

    def serve(**columns):
        shares = probabilities(**columns)
        index = tf.argmax(shares, axis=1)
        names = tf.gather(tf.constant(class_names), index)
        answers = {"probabilities": shares, "class_index": index, "class_name": names}
        return {name: answers[name] for name in outputs}

    specs = {f.name: tf.TensorSpec([None, *f.shape], f.dtype, f.name) for f in inputs}
    signature = tf.function(serve).get_concrete_function(**specs)
    tf.saved_model.save(tf.Module(), str(directory), signatures={"serving_default": signature})
    return directory


@pytest.fixture(scope="session")
def make_model(scored, tmp_path_factory):
    """Writes a SavedModel that knows the test images by heart."""
    import tensorflow as tf

    @functools.cache
    def make(
        wrong=0,
        *,
        confidence=0.91,
        class_names=scored.manifest.class_names,
        size=8,
        outputs=ANSWERS,
    ):
        """A model that gives the right class `confidence`, and all others equal shares of the rest.

        Of the first `wrong` test images it takes the class behind the right one for right. It
        answers class 0 for images that it does not know.
        """
        classes = len(class_names)
        answers = scored.labels.copy()
        answers[:wrong] = (answers[:wrong] + 1) % classes
        table, chosen = tf.constant(scored.images.reshape(len(answers), -1)), tf.constant(answers)

        def probabilities(image):
            seen = tf.reshape(image, [-1, 1, size * size])[..., : table.shape[1]]
            index = tf.gather(chosen, tf.argmax(tf.reduce_all(seen == table, axis=2), axis=1))
            return tf.one_hot(index, classes, confidence, (1 - confidence) / (classes - 1))

        image = dataclasses.replace(scored.manifest.feature("image"), shape=(size, size, 1))
        path = tmp_path_factory.mktemp("models") / "model"
        return save_model(path, [image], class_names, probabilities, outputs)

    return make


def export_untrained(manifest, directory, model="wide_deep", seed=1):
    """Exports a model whose weights are random, the same for each seed; returns its directory."""
    import keras

    from trainer.export import export
    from trainer.models import registry
    from trainer.nn.weights import named

    keras.utils.set_random_seed(seed)
    build = registry.builder(model, manifest, {})
    weights = {name: weight.numpy() for name, weight in named(build()).items()}
    export(weights, build, manifest, str(directory))
    return str(directory)
