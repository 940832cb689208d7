"""Weights that a job begins with, from what was trained before: `--init-from`.

    note = warm_start.take("jobs/a", model)  # "262 of 264 weights from the checkpoint of step 500; not there: head/bias"

It reads the newest checkpoint of a job directory (of its `best/`, if that is named), a model that a job has exported,
such as a version in the registry, and Keras' own `.keras` and `.weights.h5` files. A weight is taken where its name in
the model, layer by layer, and its shape are the same. What is read may also be a part of the model, a backbone: then it
goes into the layer that takes most of it.
"""

import io
import os
import re
import zipfile
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from etils import epath
from keras.src.saving import saving_lib

from common import provenance
from common.errors import UserError, reading, store_errors
from common.manifest import Manifest
from common.trained_on import FILE as RECORDS
from common.trained_on import TrainedOn
from trainer import export
from trainer.job import checkpoints, identity
from trainer.nn import weights

_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_WEIGHT = re.compile(rf"variables/model\.S(.*){_VALUE}")
_KERAS = (".keras", ".weights.h5")
_REPAIR = f"give a job directory, its best/, a model that a job exported, or a {' or '.join(_KERAS)} file"
_Values = Mapping[Hashable, np.ndarray]
# From a layer to its weights by the keys that such a source has for them.
_Keys = Callable[[keras.layers.Layer], Mapping[Hashable, keras.Variable]]


def learnt_from(source: str) -> TrainedOn | None:
    """Returns the records that weights have learnt from; None if the source does not say, as files of Keras do not."""
    if source.endswith(_KERAS):
        return None
    return provenance.records_of(source) or TrainedOn.load(os.path.join(_job_dir(source), RECORDS))


def _job_dir(source: str) -> str:
    parent, name = os.path.split(source.rstrip("/"))
    return parent if name == "best" else source


def check_unseen(source: str, manifest: Manifest) -> None:
    """Refuses weights that may have learnt of what is for validation or test here: those of the same dataset split otherwise.

    Files of Keras tell nothing.
    """
    if source.endswith(_KERAS):
        return
    if trained_on := provenance.trained_on(source) or identity.trained_on(_job_dir(source)):
        dataset, arguments = trained_on
        if dataset == manifest.name:
            provenance.check_drawn(manifest, "validation", f"--init-from {source}", arguments)


def take(source: str, model: keras.Model) -> str:
    """Assigns to the model's weights what fits of the source. Every replica must do it. Returns a line that describes it."""
    with reading(f"--init-from {source}", _REPAIR), store_errors():
        values, keys, kind = _read(source)
    names = weights.names(model)
    parts = [part for part in model._flatten_layers() if part is model or part._layers]
    # Of each part the weights that the source has, and the keys that they have there.
    matches = [{id(w): (key, w) for key, w in keys(part).items() if key in values and id(w) in names} for part in parts]
    fitting = [{i: (key, w) for i, (key, w) in match.items() if w.shape == values[key].shape} for match in matches]
    best = max(range(len(parts)), key=lambda i: len(fitting[i]))  # of equals the outermost
    matched, assigned = matches[best], fitting[best]
    if not assigned:
        raise UserError(
            f"--init-from {source}: no weight of this model is there by its name and shape ({kind}); the model has "
            f"{weights.listed(list(names.values()))}"
        )
    for key, weight in assigned.values():
        weight.assign(values[key])
    misfits = [
        f"{names[i]} {values[key].shape} and not {w.shape}" for i, (key, w) in matched.items() if i not in assigned
    ]
    absent = [name for i, name in names.items() if i not in matched]
    left_out = {"of another shape there": misfits, "not there": absent}
    into = "" if parts[best] is model else f" into layer {parts[best].name!r}"
    rest = "".join(f"; {why}: {weights.listed(some)}" for why, some in left_out.items() if some)
    return f"{len(assigned)} of {len(names)} weights from {kind}{into}{rest}"


def _read(source: str) -> tuple[_Values, _Keys, str]:
    """Returns values by key, a function from a layer to its weights by the same keys, and what was read, in words."""
    if source.endswith(_KERAS):
        return _of_keras(source), _keras_keys, "the file"
    if tf.io.gfile.exists(os.path.join(source, "saved_model.pb")):
        names = export.weight_names(source)
        reader = tf.compat.v1.train.NewCheckpointReader(os.path.join(source, "variables", "variables"))
        values = {name: reader.get_tensor(f"variables/{i}{_VALUE}") for i, name in enumerate(names) if name}
        return values, weights.named, "the exported model"
    for directory in (os.path.join(source, "checkpoints"), source):
        if steps := checkpoints.steps(directory):
            reader = tf.compat.v1.train.NewCheckpointReader(os.path.join(directory, f"ckpt-{steps[-1]}"))
            matches = filter(None, map(_WEIGHT.fullmatch, reader.get_variable_to_dtype_map()))
            # TensorFlow's names have ".S" for "/" and ".." for ".".
            values = {
                re.sub(r"\.(.)", lambda m: "/" if m[1] == "S" else ".", m[1]): reader.get_tensor(m[0]) for m in matches
            }
            return values, weights.named, f"the checkpoint of step {steps[-1]}"
    raise FileNotFoundError("there is neither a checkpoint nor a model")


def _of_keras(source: str) -> _Values:
    """By the place in the file, the layer's name and the weight's number.

    The file does not say which names Keras has made, so each value is also there for a layer with such a name.
    """
    content = epath.Path(source).read_bytes()
    if source.endswith(".keras"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            content = archive.read("model.weights.h5")
    store = saving_lib.H5IOStore(io.BytesIO(content))
    values = {}

    def visit(path: str, item: Any) -> None:
        if name := item.attrs.get("name"):
            layer = store.get(path.removesuffix("vars").rstrip("/"))
            for key in item:
                values[path, name, key] = values[path, _automatic(re.sub(r"_\d+$", "", name)), key] = layer[key]

    store.h5_file.visititems(visit)
    return values


def _keras_keys(layer: keras.layers.Layer) -> Mapping[Hashable, keras.Variable]:
    """The same of a layer: where Keras would write its weights."""
    places = _Places()
    saving_lib._save_state(layer, places, None, "", set())
    keys = {}
    for part in layer._flatten_layers():
        automatic = weights.automatic_name(part)
        name = _automatic(automatic) if automatic else part.name
        for weight in (*part._trainable_variables, *part._non_trainable_variables):
            if place := places.by_weight.get(id(weight)):
                path, key = place
                keys[path, name, key] = weight
    return keys


def _automatic(name: str) -> str:
    return f"{name}_*"


class _Places(saving_lib.H5IOStore):
    """Notes what Keras would write where, and writes nothing."""

    def __init__(self) -> None:
        self.by_weight: dict[int, tuple[str, str]] = {}

    def __bool__(self) -> bool:
        return True

    def make(self, path: str, metadata: Mapping[str, str] | None = None) -> "_Places":
        self._path = f"{path}/vars".lstrip("/")
        return self

    def __setitem__(self, key: str, variable: keras.Variable) -> None:
        self.by_weight[id(variable)] = self._path, key
