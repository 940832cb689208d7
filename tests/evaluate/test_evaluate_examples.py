import base64
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from common.manifest import Feature, Summary
from components.evaluate.examples import BYTES, RECORDS, made_up, plain, sample


def serve(x):
    return {"sums": tf.reduce_sum(tf.cast(tf.reshape(x, [len(x), -1]), tf.float32), axis=1)}


@pytest.mark.parametrize(("side", "kept"), [(8, RECORDS), (512, BYTES // 512**2), (1100, 0)])
def test_pixels_bounded_in_bytes(side, kept):
    feature = Feature(name="x", dtype="uint8", shape=(side, side, 1), value_range=(0.0, 255.0))
    found = sample(SimpleNamespace(serve=serve), SimpleNamespace(inputs=[feature]), "sums", raw=True)
    if not kept:
        assert found is None
        return
    images = np.frombuffer(base64.b64decode(found["inputs"]["x"]["base64"]), np.uint8).reshape(kept, -1)
    assert found["inputs"]["x"]["shape"] == [kept, side, side, 1] and len(np.unique(images)) > 50
    assert found["answers"] == pytest.approx(images.sum(axis=1))


def test_model_that_refuses_records():
    def refuse(x):
        tf.debugging.assert_type(tf.strings.to_number(x), tf.float32)

    manifest = SimpleNamespace(inputs=[Feature(name="x", dtype="string")])
    assert sample(SimpleNamespace(serve=refuse), manifest, "sums", raw=True) is None


@pytest.mark.parametrize(
    ("about", "absent"),
    [
        ({"dtype": "float32", "default": 0.1, "statistics": Summary(mean=7.0, std=0.1, min=-99.0)}, None),
        ({"dtype": "int64", "default": 7, "missing": ("", "-1"), "statistics": Summary(mean=7.0, std=0.1)}, -1),
        ({"dtype": "string", "default": "Ulm", "missing": ("-",)}, "-"),
        ({"dtype": "string", "default": "true", "missing": ("",), "type": "bool"}, ""),
    ],
)
def test_values_made_up_by_type(about, absent):
    feature = Feature(name="x", **about)
    sent = [plain(made_up(feature, 4, np.random.default_rng(0), raw=raw), feature.dtype) for raw in (True, False)]
    assert sent[0]["values"] == [absent, *sent[1]["values"][1:]] and json.dumps(sent, allow_nan=False)
    if feature.statistics:
        assert sent[1]["values"] == pytest.approx([7] * 4, abs=1)
