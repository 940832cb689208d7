import base64
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from saved_models import export_untrained

from common.manifest import Feature
from common.provenance import IMAGE_BYTES, RAW, SERVING_DEFAULT
from components.evaluate.examples import BYTES, RECORDS, sample
from components.predict.model import Model
from tests.rides import convert_quietly, source, typed_rows


def images(side: int) -> SimpleNamespace:
    """Returns a manifest of images."""
    return SimpleNamespace(
        inputs=[Feature(name="x", dtype="uint8", shape=(side, side, 1), value_range=(0.0, 255.0))]
    )


def model(signature: str, answer, shape: list, dtype: tf.DType, columns=()) -> Model:
    name = "image_bytes" if signature == IMAGE_BYTES else "x"
    function = tf.function(lambda **inputs: {"output": answer(inputs[name])})
    concrete = function.get_concrete_function(**{name: tf.TensorSpec(shape, dtype, name)})
    signatures = {signature: concrete}
    return Model(directory="model", loaded=None, signatures=signatures, columns=columns)


def pixel_sums(pixels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(pixels, tf.int64), axis=[-3, -2, -1])


@pytest.mark.parametrize(("side", "count"), [(8, RECORDS), (512, BYTES // 512**2), (1100, 0)])
def test_images_bounded_in_bytes(side, count):
    of_files = model(
        IMAGE_BYTES,
        lambda files: tf.map_fn(lambda png: pixel_sums(tf.io.decode_png(png)), files, tf.int64),
        [None],
        tf.string,
    )
    answered = sample(of_files, images(side), "output", None)
    if not count:
        assert answered is None
        return
    files = [base64.b64decode(row["b64"]) for row in answered["instances"]]
    pixels = np.stack([tf.io.decode_png(file) for file in files])
    assert pixels.shape == (count, side, side, 1) and len(np.unique(pixels)) > 50
    assert answered["answers"] == pixels.sum(axis=(1, 2, 3)).tolist()


def test_pixels_of_model_without_files():
    of_pixels = model(SERVING_DEFAULT, pixel_sums, [None, 8, 8, 1], tf.uint8)
    answered = sample(of_pixels, images(8), "output", 5.0)
    assert answered["answers"] == [np.sum(row["x"]) for row in answered["instances"]]
    assert len(answered["answers"]) == RECORDS and answered["latency_ms"] == 5


def test_columns_of_every_type(tmp_path):
    """A model takes what is made up for its columns; of the first row, nothing with a default."""
    manifest = convert_quietly(source(tmp_path, typed_rows(60)))
    model = Model.load(export_untrained(manifest, tmp_path / "model"))
    answered = sample(model, manifest, "probabilities", None)
    first, *others = answered["instances"]
    assert {*first.values()} == {None} and None not in [v for row in others for v in row.values()]
    assert len(np.unique(answered["answers"], axis=0)) == RECORDS
    assert json.loads(json.dumps(answered, allow_nan=False)) == answered


def test_model_refuses_records():
    columns = [Feature(name="x", dtype="string", type="string")]
    of_texts = model(RAW, tf.strings.to_number, [None], tf.string, columns)
    assert sample(of_texts, SimpleNamespace(source_columns=columns), "output", None) is None
