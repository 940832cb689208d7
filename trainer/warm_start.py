"""Weights that a job begins with, from what was trained before: `--init-from`.

    note = warm_start.take("jobs/a", model)  # "262 of 264 weights from the checkpoint of step 500; by name and shape it has no head/bias"

It reads the newest checkpoint of a job directory (of its `best/`, if that is named), a model that a job has exported,
such as a version in the registry, and a model that Keras has saved as a `.keras` file. A weight is taken where its name in
the model, layer by layer, and its shape are the same. What is read may also be a part of the model, a backbone: then it
goes into the layer that takes most of it.
"""

import json
import os
import re
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from common import provenance
from common.errors import UserError, reading, store_errors
from common.manifest import Manifest
from common.provenance import TrainedOn
from common.storage.files import open_file
from trainer import export
from trainer.job import checkpoints, identity
from trainer.nn import weights

_NAMED = 5  # at most, of the weights that are missing
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_WEIGHT = re.compile(rf"variables/model\.S(.*){_VALUE}")


def learnt_from(source: str) -> TrainedOn | None:
    """Returns the records that weights have learnt from; None if the source does not say, as a file of Keras does not."""
    return provenance.records_of(source) or TrainedOn.load(_job_dir(source))


def _job_dir(source: str) -> str:
    parent, name = os.path.split(source.rstrip("/"))
    return parent if name == "best" else source


def check_unseen(source: str, manifest: Manifest) -> None:
    """Refuses weights that may have learnt of what is for validation or test here: those of the same dataset split otherwise.

    A file of Keras does not tell.
    """
    if trained_on := provenance.trained_on(source) or identity.trained_on(_job_dir(source)):
        dataset, arguments = trained_on
        if dataset == manifest.name:
            provenance.check_drawn(manifest, "validation", f"--init-from {source}", arguments)


def take(source: str, model: keras.Model) -> str:
    """Assigns to the model's weights what fits of the source. Every replica must do it. Returns a line that describes it."""
    repair = "give a job directory, its best/, a model that a job exported, or a .keras file"
    with reading(f"--init-from {source}", repair), store_errors():
        values, kind = _read(source)

    def fitting(part: keras.layers.Layer) -> dict[str, keras.Variable]:
        return {
            name: weight
            for name, weight in weights.named(part).items()
            if name in values and weight.shape == values[name].shape
        }

    target = max(
        model._flatten_layers(), key=lambda part: len(fitting(part))
    )  # of equals the outermost
    taken = fitting(target)
    for name, weight in taken.items():
        weight.assign(values[name])
    assigned = set(map(id, taken.values()))
    rest = [name for name, weight in weights.named(model).items() if id(weight) not in assigned]
    more = len(rest) - _NAMED
    missing = ", ".join(rest[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    if not taken:
        raise UserError(
            f"--init-from {source}: {kind} has none of these by name and shape: {missing}"
        )
    into = "" if target is model else f" into layer {target.name!r}"
    without = f"; by name and shape it has no {missing}" if rest else ""
    return f"{len(taken)} of {len(taken) + len(rest)} weights from {kind}{into}{without}"


def _read(source: str) -> tuple[Mapping[str, np.ndarray], str]:
    """Returns values by the names that `trainer.nn.weights` gives them, and what was read, in words."""
    if source.endswith(".keras"):
        saved = keras.saving.load_model(source, compile=False)
        return {name: weight.numpy() for name, weight in weights.named(saved).items()}, "the file"
    if tf.io.gfile.exists(os.path.join(source, "saved_model.pb")):
        with open_file(os.path.join(source, export.WEIGHT_NAMES)) as file:
            names = json.load(file)
        reader = tf.compat.v1.train.NewCheckpointReader(
            os.path.join(source, "variables", "variables")
        )
        values = {
            name: reader.get_tensor(f"variables/{i}{_VALUE}")
            for i, name in enumerate(names)
            if name
        }
        return values, "the exported model"
    for directory in (os.path.join(source, "checkpoints"), source):
        if steps := checkpoints.steps(directory):
            reader = tf.compat.v1.train.NewCheckpointReader(
                os.path.join(directory, f"ckpt-{steps[-1]}")
            )
            matches = filter(None, map(_WEIGHT.fullmatch, reader.get_variable_to_dtype_map()))
            # TensorFlow's names have ".S" for "/" and ".." for ".".
            values = {
                re.sub(r"\.(.)", lambda m: "/" if m[1] == "S" else ".", m[1]): reader.get_tensor(
                    m[0]
                )
                for m in matches
            }
            return values, f"the checkpoint of step {steps[-1]}"
    raise FileNotFoundError("there is neither a checkpoint nor a model")
