"""Each test starts servers."""

import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
import trips

from common.errors import UserError
from common.manifest import Manifest
from components.evaluate.evaluate import evaluate
from components.evaluate.options import Options
from components.register import answers
from components.register.__main__ import main
from components.register.directory import DirectoryRegistry
from components.register.register import promote, register
from components.register.registry import CHAMPION
from trainer.export import export
from trainer.models.registry import builder
from trainer.nn.weights import named

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return trips.make(tmp_path_factory.mktemp("trips"))


@pytest.fixture
def judged(data, tmp_path):
    """Where a model with made-up weights lies, and its evaluation."""
    manifest, random = Manifest.load(data), np.random.default_rng(0)
    build = builder("wide_deep", manifest, {})
    values = {
        name: random.normal(size=weight.shape, scale=0.2).astype(np.float32) for name, weight in named(build()).items()
    }
    export(values, build, manifest, model := str(tmp_path / "model"))
    return model, evaluate(Options(model_dir=model, data_dir=str(data), output=str(tmp_path / "judged")))


def promoted(model: str, evaluation: dict, registry: pathlib.Path) -> str:
    accepted = {**evaluation, "decision": {"verdict": "promote", "reasons": []}}
    version = register(model_dir=model, evaluation=accepted, registry=str(registry), name="m")
    return promote(evaluation=json.loads(json.dumps(accepted)), registry=str(registry), name="m", version=version)


def changed(weights: str) -> None:
    """Writes other numbers in place of those there, as whole files."""
    reader = tf.train.load_checkpoint(weights)
    held = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    held = {
        name: -tensor if isinstance(tensor, np.ndarray) and tensor.dtype == np.float32 else tensor
        for name, tensor in held.items()
    }
    tf.raw_ops.SaveV2(prefix=weights, tensor_names=[*held], shape_and_slices=[""] * len(held), tensors=[*held.values()])


def test_version_with_other_answers_is_refused(judged, tmp_path, refused, monkeypatch, capsys):
    model, evaluation = judged
    first = evaluation["answered"]["instances"][0]
    assert first["miles"] is None and first["company"] is None  # which the model makes defaults of
    assert promoted(model, evaluation, tmp_path / "registry") == "version 1 is the champion now"
    tampered = shutil.copytree(model, tmp_path / "tampered")
    changed(str(tampered / "variables" / "variables"))
    with pytest.raises(
        UserError, match=r"does not answer as when it was judged: .*; at most 0\.0\d+ may they differ"
    ) as error:
        promoted(str(tampered), {**evaluation, "champion": {"version": "1"}}, tmp_path / "registry")
    assert "it gives probabilities [[0." in str(error.value) and "and gave [[0." in str(error.value)
    place = ["--registry", tmp_path / "registry", "--name", "m"]
    assert "does not answer as when it was judged" in refused(main, "promote", "2", *place)
    assert DirectoryRegistry(str(tmp_path / "registry")).aliases("m").get(CHAMPION) == "1"
    assert main(["show", "2", *map(str, place)]) == 0 and "probabilities" not in capsys.readouterr().out
    monkeypatch.setattr(answers, "check", pytest.fail)  # what is decided already is not asked for seconds
    assert "not promoted: the champion was none when" in promoted(model, evaluation, tmp_path / "registry")


def test_slow_version_refused(judged, tmp_path):
    model, evaluation = judged
    evaluation["answered"]["latency_ms"] = 1e-3
    with pytest.raises(UserError, match=r"its server answers a row in \d\S* ms, and the gate allows 0.001 ms"):
        promoted(model, evaluation, tmp_path / "registry")
    assert DirectoryRegistry(str(tmp_path / "registry")).aliases("m") == {}


def test_model_needing_own_code_refused(data, tmp_path):
    manifest = Manifest.load(data)

    def serve(**columns: tf.Tensor) -> dict[str, tf.Tensor]:
        shares = tf.numpy_function(
            lambda miles: np.stack([miles * 0, miles * 0 + 1], 1), [columns["miles"]], tf.float32
        )
        shares = tf.ensure_shape(shares, [None, 2])
        index = tf.argmax(shares, axis=1)
        return {"probabilities": shares, "class_index": index, "class_name": tf.gather(manifest.class_names, index)}

    module = tf.Module()
    module.serve = tf.function(serve)
    specs = {f.name: tf.TensorSpec([None], f.dtype, name=f.name) for f in manifest.inputs}
    model = str(tmp_path / "model")
    tf.saved_model.save(module, model, signatures={"serving_default": module.serve.get_concrete_function(**specs)})
    # Here it works: the function is still known to this process.
    evaluation = evaluate(Options(model_dir=model, data_dir=str(data), output=str(tmp_path / "judged")))
    with pytest.raises(UserError, match=r"its server refuses what it answered when it was judged \(.*pyfunc_"):
        promoted(model, evaluation, tmp_path / "registry")
