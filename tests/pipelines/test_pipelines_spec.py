import pytest
import yaml

from pipelines.compile import compile_specs
from pipelines.training import BACKENDS
from tests.programs import run_python

IMAGE = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64
FILES = [f"training-{name}.yaml" for name in sorted(BACKENDS)]


@pytest.mark.long
def test_compiling_twice_gives_same_bytes(tmp_path):
    built = []
    for seed in "12":  # Of hashes.
        flags = ("--output-dir", tmp_path / seed)
        printed = run_python("pipelines/compile.py", *flags, env={"PYTHONHASHSEED": seed})
        assert "Vertex AI needs an image by digest" in printed
        built.append({path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()})
    assert built[0] == built[1] and sorted(built[0]) == FILES


def test_claim_is_mounted_everywhere(tmp_path):
    paths = compile_specs(IMAGE, str(tmp_path), claim="data:/mnt/data")
    documents = {path.stem: [*yaml.safe_load_all(path.read_text())] for path in paths}
    spec, platform = documents.pop("training-kubeflow")
    assert {name: len(others) for name, others in documents.items()} == {
        "training-local": 1,
        "training-vertex": 1,
    }
    mounted = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert mounted.keys() == spec["deploymentSpec"]["executors"].keys()
    name = {"runtimeValue": {"constant": "data"}}
    mount = {"pvcNameParameter": name, "mountPath": "/mnt/data"}
    assert [*mounted.values()] == [{"pvcMount": [mount]}] * len(mounted)
    inputs = spec["root"]["inputDefinitions"]["parameters"]
    launcher = ["--backend=kubernetes", f"--image={IMAGE}", "--claim=data:/mnt/data"]
    assert inputs["train_args"]["defaultValue"] == launcher
