import yaml

from pipelines.compile import compile_specs

IMAGE = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64


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
