"""A SavedModel that takes what a client has and answers with names.

It loads with TensorFlow alone, and its files lie as TensorFlow Serving wants them inside a version's folder.

    served = tf.saved_model.load("job/model").signatures["serving_default"]
    served(image=images)  # -> probabilities [N, classes], class_index [N], class_name [N]

Of a table it takes every column that the model uses, as the source has it: `served(fare=..., company=..., ...)`. What is
missing is sent as NaN of a float, else as one of the texts or numbers that the schema lists as `missing`, and becomes the
column's default as in conversion; of a column without a default it is refused, since no model has learnt what it means.

A table has two more, which take each column as text, as a cell of a CSV file has it, strings [N]: `raw` answers, and `faults` says
what is wrong in each row, the empty string of a right one; with any fault in them `raw` refuses the rows.

    loaded.signatures["raw"](fare=tf.constant(["12.5", ""]), started=tf.constant(["2024-01-31 08:15", "2024-02-01"]))

Of images there is a second signature, `image_bytes`, that takes whole PNG and JPEG files of any size: strings [N], which TensorFlow
Serving reads as `{"b64": ...}`. It decodes, crops and resizes them as the converter or the trainer's reader has done.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from common import provenance
from common.errors import UserError, store_errors
from common.manifest import Manifest
from common.provenance import FAULTS, IMAGE_BYTES, RAW, SERVING_DEFAULT, TrainedOn
from common.storage.files import write_text
from common.storage.storage import is_remote
from trainer.data import features
from trainer.data.serving_preprocessing import parse_texts, refuse, serving_preprocessing
from trainer.models.registry import Builder
from trainer.nn import weights

_OF_A_FILE = (
    0.0,
    255.0,
)  # what pixels of image files can be; others are on a scale that no file has
# Names by `trainer.nn.weights` of the variables, in the order in which the archive numbers them;
# null of a random generator's state.
WEIGHT_NAMES = "assets.extra/weights.json"


def export(
    values: Mapping[str, np.ndarray],
    build: Builder,
    manifest: Manifest,
    directory: str,
    learnt: TrainedOn | None = None,
) -> None:
    """Writes the model with its preprocessing and what it has learnt from; it replaces what was there when it is complete.

    In a store it is deleted before. The model is built anew, outside any strategy, so nothing of
    that is saved.
    """
    served = build()
    weights.put(values, served)
    archive = keras.export.ExportArchive()
    archive.track(served)
    serve = signature(served, build, manifest)
    endpoints = {SERVING_DEFAULT: serve}
    if manifest.is_table:
        endpoints |= _text_signatures(served, build, manifest)
    elif (image := manifest.inputs[0]).value_range == _OF_A_FILE:

        def from_files(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            # What is stored as files was decoded by the reader, what as pixels by the converter.
            pixels = features.decode_images(
                image_bytes, image.shape, accurate=image.encoding is None
            )
            return serve(pixels)

        endpoints[IMAGE_BYTES] = _traced(
            from_files, {IMAGE_BYTES: tf.TensorSpec([None], tf.string)}
        )
    for name, endpoint in endpoints.items():
        archive.add_endpoint(name, endpoint)
    # A store has no directories to rename: there the model is whole when `saved_model.pb`, the last
    # that counts, appears.
    partial = directory if is_remote(directory) else f"{directory}.partial"
    with store_errors():
        if tf.io.gfile.exists(partial):
            tf.io.gfile.rmtree(partial)
        provenance.write(
            manifest,
            build.name,
            partial,
            task=build.task_by,
            learnt=learnt,
            signatures=[*endpoints],
        )
        names = {id(weight): name for name, weight in weights.named(served).items()}
        write_text(
            os.path.join(partial, WEIGHT_NAMES),
            json.dumps([names.get(id(v)) for v in served.variables]) + "\n",
        )
        archive.write_out(partial, verbose=False)
        if partial != directory:
            if tf.io.gfile.exists(directory):
                tf.io.gfile.rmtree(directory)
            tf.io.gfile.rename(partial, directory)
        if not tf.io.gfile.exists(os.path.join(directory, "saved_model.pb")):
            raise OSError(f"{directory}: the export is not complete")


def signature(
    served: keras.Model, build: Builder, manifest: Manifest
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a function, traced, from the dataset's inputs in their order to the task's answers by the model."""

    def serve(**features: tf.Tensor) -> dict[str, tf.Tensor]:
        return build.task.answer(
            served(build.prepare(serving_preprocessing(manifest, features)), training=False)
        )

    return _traced(
        serve, {f.name: tf.TensorSpec([None, *f.shape], f.dtype) for f in manifest.inputs}
    )


def _text_signatures(
    served: keras.Model, build: Builder, manifest: Manifest
) -> dict[str, tf.types.experimental.PolymorphicFunction]:
    """Returns the functions, traced, that take a table's columns as texts, by the names of their signatures."""

    def raw(**texts: tf.Tensor) -> dict[str, tf.Tensor]:
        columns, faults = parse_texts(manifest, texts)
        is_wrong = faults != ""
        refuse(is_wrong, tf.gather(faults, tf.argmax(is_wrong)))
        return build.task.answer(served(build.prepare(columns), training=False))

    def faults(**texts: tf.Tensor) -> dict[str, tf.Tensor]:
        return {FAULTS: parse_texts(manifest, texts)[1]}

    specs = {column.name: tf.TensorSpec([None], tf.string) for column in manifest.source_columns}
    return {RAW: _traced(raw, specs), FAULTS: _traced(faults, specs)}


def _traced(
    function: Callable[..., dict[str, tf.Tensor]], specs: Mapping[str, tf.TensorSpec]
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a function as a graph whose signature takes inputs of these forms by their names; here it takes them in their order."""
    # An export makes small letters of the names of arguments by name.
    named = [tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()]
    traced = tf.function(
        lambda *values: function(**dict(zip(specs, values, strict=True))), input_signature=named
    )
    traced.get_concrete_function()
    return traced


def load(directory: str) -> Any:
    """Returns a SavedModel, local or in a bucket, as TensorFlow loads it.

    Raises:
      UserError: If there is none, or it cannot be read.
    """
    try:
        if not tf.saved_model.contains_saved_model(directory):
            raise UserError(
                f"{directory}: no SavedModel here (a finished training job writes one to "
                "<job-dir>/model)"
            )
        return tf.saved_model.load(directory)
    except (OSError, tf.errors.OpError) as error:
        raise UserError(
            f"{directory}: the model cannot be read ({' '.join(str(error).split())})"
        ) from None
