import base64
import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from common.manifest import Feature, Summary
from common.provenance import IMAGE_BYTES, RAW, SERVING_DEFAULT
from components.evaluate.examples import BYTES, RECORDS, made_up, sample
from components.predict.model import Model


class OfImages:
    """Manifest of images."""

    inputs = (Feature(name="x", dtype="uint8", shape=(8, 8, 1), value_range=(0.0, 255.0)),)


class OfTable:
    """Manifest of a table."""

    def __init__(self, **column: object) -> None:
        self.source_columns = (Feature(name="x", **column),)


def model(signature: str, answer, spec: tf.TensorSpec, columns=()) -> Model:
    function = tf.function(lambda **inputs: answer(**inputs)).get_concrete_function(**{spec.name: spec})
    return Model(directory="model", loaded=None, signatures={signature: function}, columns=columns)


@pytest.mark.parametrize(("side", "kept"), [(8, RECORDS), (512, BYTES // 512**2), (1100, 0)])
def test_images_bounded_in_bytes(side, kept, monkeypatch):
    feature = Feature(name="x", dtype="uint8", shape=(side, side, 1), value_range=(0.0, 255.0))
    monkeypatch.setattr(OfImages, "inputs", (feature,))
    of_files = model(
        IMAGE_BYTES,
        lambda image_bytes: {
            "sums": tf.map_fn(
                lambda png: tf.reduce_sum(tf.cast(tf.io.decode_png(png), tf.int64)), image_bytes, tf.int64
            )
        },
        tf.TensorSpec([None], tf.string, "image_bytes"),
    )
    found = sample(of_files, OfImages, "sums", None)
    if not kept:
        assert found is None
        return
    images = [np.array(Image.open(io.BytesIO(base64.b64decode(row["b64"])))) for row in found["instances"]]
    assert np.shape(images) == (kept, side, side) and len(np.unique(images)) > 50
    assert found["answers"] == [image.sum() for image in images] and json.dumps(found, allow_nan=False)


def test_pixels_of_model_without_files():
    def answer(x):
        return {"sums": tf.reduce_sum(tf.cast(x, tf.int64), axis=[1, 2, 3])}

    of_pixels = model(SERVING_DEFAULT, answer, tf.TensorSpec([None, 8, 8, 1], tf.uint8, "x"))
    found = sample(of_pixels, OfImages, "sums", 5.0)
    assert found["answers"] == [np.sum(row["x"]) for row in found["instances"]] and len(found["answers"]) == RECORDS
    assert found["latency_ms"] == 5


def test_first_row_lacks_what_has_default():
    manifest = OfTable(dtype="int64", type="int", default=7, missing=("-",))
    of_texts = model(RAW, lambda x: {"said": x}, tf.TensorSpec([None], tf.string, "x"), manifest.source_columns)
    found = sample(of_texts, manifest, "said", None)
    assert found["instances"][0] == {"x": None} and None not in [row["x"] for row in found["instances"][1:]]


def test_model_that_refuses_records():
    def refuse(x):
        return {"numbers": tf.strings.to_number(x)}

    manifest = OfTable(dtype="string", type="string")
    of_texts = model(RAW, refuse, tf.TensorSpec([None], tf.string, "x"), manifest.source_columns)
    assert sample(of_texts, manifest, "numbers", None) is None


@pytest.mark.parametrize(
    ("about", "values"),
    [
        ({"dtype": "float32", "type": "float", "statistics": Summary(mean=7.0, std=0.1, min=-99.0)}, [7] * 4),
        ({"dtype": "int64", "type": "int", "statistics": Summary(mean=7.0, std=0.1)}, [7] * 4),
        ({"dtype": "int64", "type": "time", "statistics": Summary(mean=0.5, std=1e-9)}, ["1970-01-01T00:00:00"] * 4),
        ({"dtype": "string", "type": "string"}, ["other"] * 4),
        ({"dtype": "string", "type": "bool"}, ["false"] * 4),
    ],
)
def test_values_made_up_by_type(about, values):
    made = made_up(Feature(name="x", **about), 4, np.random.default_rng(0)).tolist()
    assert made == (values if isinstance(values[0], str) else pytest.approx(values, abs=1))
