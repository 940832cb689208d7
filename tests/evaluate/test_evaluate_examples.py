import base64
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from saved_models import export_untrained

from common.manifest import Feature
from common.provenance import IMAGE_BYTES, RAW
from components.evaluate.examples import BYTES, RECORDS, sample
from components.predict.model import Model
from tests.rides import convert_quietly, source, typed_rows


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


@pytest.mark.parametrize(("side", "count"), [(8, RECORDS), (512, BYTES // 512**2), (1100, 0)])
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


@pytest.mark.long
def test_columns_of_every_type(tmp_path):
    """A model takes what is made up for its columns; of the first row, nothing with a default."""
    manifest = convert_quietly(source(tmp_path, typed_rows(60)))
    model = Model(export_untrained(manifest, tmp_path / "model"))
    answered = sample(model, manifest, "probabilities", None)
    first, *others = answered["instances"]
    assert {*first.values()} == {None} and None not in [v for row in others for v in row.values()]
    assert len(np.unique(answered["answers"], axis=0)) == RECORDS
    assert json.loads(json.dumps(answered, allow_nan=False)) == answered


def test_model_refuses_records():
    columns = [Feature(name="x", dtype="string", type="string")]
    of_texts = model(RAW, tf.strings.to_number, "x", columns)
    assert sample(of_texts, SimpleNamespace(source_columns=columns), "output", None) is None
