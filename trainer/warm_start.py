"""Weights that a job begins with, from earlier training: `--init-from`.

    note = warm_start.take("jobs/a", model)
    # "262 of 264 weights from the checkpoint of step 500; by name and shape it has no head/bias"

Sources are a job directory (its newest checkpoint) or its `best/`, a model that a job has exported,
such as a version in the registry, and a model that Keras has saved as a `.keras` file. A weight is
taken if its name in the model, layer by layer, and its shape are the same. The source may also be a
part of the model, such as a backbone: then it goes into the layer that takes most of it.
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

_NAMED = 5  # Number of missing weights, at most, that a message names.
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_WEIGHT = re.compile(rf"variables/model\.S(.*){_VALUE}")


def learnt_from(source: str) -> TrainedOn | None:
    """Returns the records that the source's weights were trained on.

    They are in `trained_on.npz` of an exported model or of a job directory; for `best` of a job
    directory, in that of the job. Returns None if there is no such file, as for a `.keras` file.

    Args:
      source: Value of `--init-from`.

    Raises:
      UserError: If the source's list of records cannot be used.
      ConnectionError: If a store does not answer.
    """
    return provenance.records_of(source) or TrainedOn.load(_job_dir(source))


def _job_dir(source: str) -> str:
    parent, name = os.path.split(source.rstrip("/"))
    return parent if name == "best" else source


def check_unseen(source: str, manifest: Manifest) -> None:
    """Checks that weights have not learnt from records that are for validation or test here.

    They may have if they were trained on a dataset of the same name with another split. Sources
    without `dataset.json` or `job.json`, which say what they were trained on, pass.

    Args:
      source: Value of `--init-from`.
      manifest: Manifest of the dataset here.

    Raises:
      UserError: If seed or fractions of the validation and test splits differ, or the source's
        record of its training cannot be used.
      ConnectionError: If a store does not answer.
    """
    if trained_on := provenance.trained_on(source) or identity.trained_on(_job_dir(source)):
        dataset, arguments = trained_on
        if dataset == manifest.name:
            provenance.check_drawn(manifest, "validation", f"--init-from {source}", arguments)


def take(source: str, model: keras.Model) -> str:
    """Assigns weights of a source to those of the model that have the same name and shape.

    If a layer of the model, such as a backbone, fits more of the source's weights than the model
    itself does, names are relative to that layer, and only its weights are assigned. Every replica
    must call this.

    Args:
      source: Value of `--init-from`.
      model: The live model.

    Returns:
      A line that says how many of the model's weights were taken, from what, into which layer, and
      which were missing.

    Raises:
      UserError: If the source cannot be read, or no weight fits.
      ConnectionError: If a store does not answer.
    """
    repair = "give a job directory, its best/, a model that a job exported, or a .keras file"
    with reading(f"--init-from {source}", repair), store_errors():
        values, kind = _read(source)

    def fitting(part: keras.layers.Layer) -> dict[str, keras.Variable]:
        return {
            name: weight
            for name, weight in weights.named(part).items()
            if name in values and weight.shape == values[name].shape
        }

    # Outer layers come first, so that of layers that take equally many the outermost is chosen.
    target = max(model._flatten_layers(), key=lambda part: len(fitting(part)))
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
    """Reads the weights of a source.

    Args:
      source: A `.keras` file, the directory of a SavedModel that a job has exported, a job
        directory, or its `best/`. Of several checkpoints the newest counts.

    Returns:
      The weights by the names of `trainer.nn.weights`, and text that says where they are from, such
      as `the checkpoint of step 500`.

    Raises:
      FileNotFoundError: If the directory has neither a SavedModel nor a checkpoint.
      Exception: Of any type, from Keras or TensorFlow, if the source cannot be read.
    """
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
