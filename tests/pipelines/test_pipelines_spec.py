import pytest
import yaml

from pipelines.compile import compile_specs
from pipelines.training import BACKENDS
from tests.programs import run_python

IMAGE = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64
FILES = [f"training-{name}.yaml" for name in sorted(BACKENDS)]


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    """The compiled spec of each back end."""
    paths = compile_specs(IMAGE, str(tmp_path_factory.mktemp("build")), claim="data:/mnt/data")
    documents = [[*yaml.safe_load_all(path.read_text())] for path in paths]
    return dict(zip(BACKENDS, documents, strict=True))


def dags(spec):
    """Returns the tasks of each group of a spec, by name."""
    groups = {**spec["components"], "root": spec["root"]}
    return {name: each["dag"]["tasks"] for name, each in groups.items() if "dag" in each}


@pytest.mark.long
def test_compiling_twice_gives_same_bytes(tmp_path):
    built = []
    for seed in "12":  # Of hashes.
        flags = ("--output-dir", tmp_path / seed)
        printed = run_python("pipelines/compile.py", *flags, env={"PYTHONHASHSEED": seed})
        assert "Vertex AI needs an image by digest" in printed
        built.append({path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()})
    assert built[0] == built[1] and sorted(built[0]) == FILES


def test_cached_steps_of_each_platform(specs):
    cached = {
        backend: {
            task["taskInfo"]["name"]
            for tasks in dags(spec).values()
            for task in tasks.values()
            if task.get("cachingOptions", {}).get("enableCache")
        }
        for backend, (spec, *_) in specs.items()
    }
    # Here the notes of what is cached are those of one run, and `convert` looks for itself.
    steps = "plan train evaluate gate register promote predict"
    assert cached == {"vertex": {"convert"}, "kubeflow": {"convert"}, "local": {*steps.split()}}


def test_claim_is_mounted_everywhere(specs):
    spec, platform = specs["kubeflow"]
    mounted = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert mounted.keys() == spec["deploymentSpec"]["executors"].keys()
    name = {"runtimeValue": {"constant": "data"}}
    mount = {"pvcNameParameter": name, "mountPath": "/mnt/data"}
    assert [*mounted.values()] == [{"pvcMount": [mount]}] * len(mounted)
    assert [len(specs[backend]) for backend in ("local", "vertex")] == [1, 1]
    inputs = spec["root"]["inputDefinitions"]["parameters"]
    launcher = ["--backend=kubernetes", f"--image={IMAGE}", "--claim=data:/mnt/data"]
    assert inputs["train_args"]["defaultValue"] == launcher
