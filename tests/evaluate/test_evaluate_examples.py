import base64
from types import SimpleNamespace

import pytest
import tensorflow as tf

from common.manifest import Feature
from common.provenance import IMAGE_BYTES, RAW
from components.evaluate.examples import BYTES, sample
from components.predict.model import Model


class MadeUp(Model):
    """A model that no file has."""

    def __init__(self, signatures, columns):
        self.signatures = signatures
        self.columns = columns


def model(signature, answer, name, columns=()):
    function = tf.function(lambda **inputs: {"output": answer(inputs[name])})
    spec = tf.TensorSpec([None], tf.string, name)
    signatures = {signature: function.get_concrete_function(**{name: spec})}
    return MadeUp(signatures, columns)


@pytest.mark.parametrize(("side", "count"), [(512, BYTES // 512**2), (1100, 0)])
def test_images_bounded_in_bytes(side, count):
    feature = Feature(name="x", dtype="uint8", shape=(side, side, 1), value_range=(0.0, 255.0))
    of_files = model(IMAGE_BYTES, tf.strings.length, "image_bytes")
    answered = sample(of_files, SimpleNamespace(inputs=[feature]), "output", 5.0)
    if not count:
        assert answered is None
        return
    files = [base64.b64decode(row["b64"]) for row in answered["instances"]]
    assert len({*files}) == count and tf.io.decode_png(files[0]).shape == (side, side, 1)
    assert answered["answers"] == [len(file) for file in files]


def test_model_refuses_records():
    columns = [Feature(name="x", dtype="string", type="string")]
    of_texts = model(RAW, tf.strings.to_number, "x", columns)
    assert sample(of_texts, SimpleNamespace(source_columns=columns), "output", None) is None
