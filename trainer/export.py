"""Exports a SavedModel that takes a client's values and answers with names.

It needs only TensorFlow to load, and its files lie as TensorFlow Serving expects them in a
version's folder.

    served = tf.saved_model.load("job/model").signatures["serving_default"]
    served(image=images)  # -> probabilities [N, classes], class_index [N], class_name [N]

For a table it takes every column that the model uses, with the values that the source has:
`served(fare=..., company=..., ...)`. A missing value is sent as NaN (floats), or as one of the
texts or numbers that the schema lists as `missing`. It becomes the column's default, as in
conversion; in a column without a default it is an error, since no model has learnt what it means.

A table has a second signature, `raw`, that takes each column as text, as in a cell of a CSV file,
strings [N]. It fails if any row has a mistake; the message lists all of them.

    raw = loaded.signatures["raw"]
    raw(fare=tf.constant(["12.5", ""]), started=tf.constant(["2024-01-31 08:15", "2024-02-01"]))

For images there is a second signature, `image_bytes`, that takes whole PNG and JPEG files of any
size, strings [N], which TensorFlow Serving reads as `{"b64": ...}`. It decodes, crops and resizes
them as the converter or the trainer's reader has done.
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
from common.provenance import IMAGE_BYTES, RAW, SERVING_DEFAULT, TrainedOn
from common.storage.files import write_text
from common.storage.storage import is_remote
from trainer.data import features
from trainer.data.serving_preprocessing import serving_preprocessing
from trainer.models.registry import Builder
from trainer.nn import weights

# Range of the pixels of image files; pixels with another range cannot come from a file.
_OF_A_FILE = (0.0, 255.0)
# List of the variables' names by `trainer.nn.weights`, in the order in which the archive numbers
# the variables; null for the state of a random generator.
WEIGHT_NAMES = "assets.extra/weights.json"


def export(
    values: Mapping[str, np.ndarray],
    build: Builder,
    manifest: Manifest,
    directory: str,
    learnt: TrainedOn | None = None,
) -> None:
    """Writes the model as a SavedModel, with its preprocessing and what it has learnt from.

    The latter is in the directory's `assets.extra`, beside the names of the weights. An earlier
    model in the directory is replaced when the new one is complete; in a store it is deleted
    before. The model is built anew, outside any strategy, so that nothing of the strategy is saved.

    Args:
      values: Weights by name.
      build: Builder of the model.
      manifest: Manifest of the dataset.
      directory: Directory of the SavedModel, local or in a bucket.
      learnt: Records that the model was trained on; None to leave them out.

    Raises:
      OSError: If the model cannot be written, or a store does not answer.
      UserError: If a store refuses a request.
      ValueError: If the names are not those of the model's weights.
    """
    served = build()
    weights.put(values, served)
    archive = keras.export.ExportArchive()
    archive.track(served)
    serve = signature(served, build, manifest)
    endpoints = {SERVING_DEFAULT: serve}
    if manifest.is_table:
        text = tf.TensorSpec([None], tf.string)
        texts = {column.name: text for column in manifest.source_columns}
        endpoints[RAW] = signature(served, build, manifest, texts)
    elif (image := manifest.inputs[0]).value_range == _OF_A_FILE:

        def from_files(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            # The reader decoded images that are stored as files, and the converter those that are
            # stored as pixels, which it does accurately.
            pixels = features.decode_images(
                image_bytes, image.shape, accurate=image.encoding is None
            )
            return serve(pixels)

        endpoints[IMAGE_BYTES] = _traced(
            from_files, {IMAGE_BYTES: tf.TensorSpec([None], tf.string)}
        )
    for name, endpoint in endpoints.items():
        archive.add_endpoint(name, endpoint)
    # A store has no directories that could be renamed. There the model is complete when
    # `saved_model.pb`, the last file that matters, appears.
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
    served: keras.Model,
    build: Builder,
    manifest: Manifest,
    specs: Mapping[str, tf.TensorSpec] | None = None,
) -> tf.types.experimental.PolymorphicFunction:
    """Returns the traced function of a signature of the exported model.

    It takes columns or pixels in their order, fills in the defaults of missing values, and returns
    the task's answers by name.

    Args:
      served: Model that answers.
      build: Its builder, which has its task and makes its inputs.
      manifest: Manifest of the dataset.
      specs: Specs of the inputs by name; None for those of `serving_default`, which takes the
        dataset's inputs with their own types.
    """

    def serve(**features: tf.Tensor) -> dict[str, tf.Tensor]:
        return build.task.answer(
            served(build.prepare(serving_preprocessing(manifest, features)), training=False)
        )

    specs = specs or {f.name: tf.TensorSpec([None, *f.shape], f.dtype) for f in manifest.inputs}
    return _traced(serve, specs)


def _traced(
    function: Callable[..., dict[str, tf.Tensor]], specs: Mapping[str, tf.TensorSpec]
) -> tf.types.experimental.PolymorphicFunction:
    """Returns a function as a graph that takes tensors of these specs, in their order.

    In the exported signature they are arguments by name.
    """
    # The export would change argument names to lower case if the function took them by name.
    named = [tf.TensorSpec(spec.shape, spec.dtype, name=name) for name, spec in specs.items()]
    traced = tf.function(
        lambda *values: function(**dict(zip(specs, values, strict=True))), input_signature=named
    )
    traced.get_concrete_function()
    return traced


def load(directory: str) -> Any:
    """Returns a SavedModel, local or in a bucket, as TensorFlow loads it.

    Raises:
      UserError: If there is none, or it cannot be read, also because a store does not answer.
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
