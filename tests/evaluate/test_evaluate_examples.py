import base64
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from common.manifest import Feature, Summary
from common.provenance import IMAGE_BYTES, RAW, SERVING_DEFAULT
from components.evaluate.examples import BYTES, RECORDS, made_up, sample
from components.predict.model import Model


def images(side: int) -> SimpleNamespace:
    """Returns a manifest of images."""
    return SimpleNamespace(
        inputs=[Feature(name="x", dtype="uint8", shape=(side, side, 1), value_range=(0.0, 255.0))]
    )


def model(signature: str, answer, shape: list, dtype: tf.DType, columns=()) -> Model:
    name = "image_bytes" if signature == IMAGE_BYTES else "x"
    function = tf.function(lambda **inputs: {"output": answer(inputs[name])})
    signatures = {
        signature: function.get_concrete_function(**{name: tf.TensorSpec(shape, dtype, name)})
    }
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
    pixels = np.stack(
        [Image.open(io.BytesIO(base64.b64decode(row["b64"]))) for row in answered["instances"]]
    )
    assert pixels.shape == (count, side, side) and len(np.unique(pixels)) > 50
    assert answered["answers"] == pixels.sum(axis=(1, 2)).tolist() and json.dumps(
        answered, allow_nan=False
    )


def test_pixels_of_model_without_files():
    of_pixels = model(SERVING_DEFAULT, pixel_sums, [None, 8, 8, 1], tf.uint8)
    answered = sample(of_pixels, images(8), "output", 5.0)
    assert answered["answers"] == [np.sum(row["x"]) for row in answered["instances"]]
    assert len(answered["answers"]) == RECORDS and answered["latency_ms"] == 5


def test_first_row_lacks_what_has_default():
    columns = [Feature(name="x", dtype="int64", type="int", default=7, missing=("-",))]
    of_texts = model(RAW, tf.identity, [None], tf.string, columns)
    first, *others = sample(of_texts, SimpleNamespace(source_columns=columns), "output", None)[
        "instances"
    ]
    assert first == {"x": None} and {"x": None} not in others


def test_model_refuses_records():
    columns = [Feature(name="x", dtype="string", type="string")]
    of_texts = model(RAW, tf.strings.to_number, [None], tf.string, columns)
    assert sample(of_texts, SimpleNamespace(source_columns=columns), "output", None) is None


@pytest.mark.parametrize(
    ("about", "value"),
    [
        (
            {
                "dtype": "float32",
                "type": "float",
                "statistics": Summary(mean=7.0, std=0.1, min=-99.0),
            },
            7,
        ),
        (
            {"dtype": "int64", "type": "time", "statistics": Summary(mean=0.5, std=1e-9)},
            "1970-01-01T00:00:00",
        ),
        ({"dtype": "string", "type": "string"}, "other"),
        ({"dtype": "string", "type": "bool"}, "false"),
    ],
)
def test_values_made_up_by_type(about, value):
    values = made_up(Feature(name="x", **about), 4, np.random.default_rng(0)).tolist()
    assert values == [value if isinstance(value, str) else pytest.approx(value, abs=1)] * 4
