import errno
import pathlib

import pytest
import yaml
from kfp import compiler

from common.errors import UserError
from pipelines.compile import compile_specs
from pipelines.training import BACKENDS

IMAGE = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[pathlib.Path]:
    return compile_specs(IMAGE, str(tmp_path_factory.mktemp("build")))


@pytest.fixture(scope="module")
def found(paths) -> dict[str, dict[str, dict]]:
    """The tasks of each back end."""
    return {
        backend: tasks(yaml.safe_load(path.read_text()))
        for backend, path in zip(BACKENDS, paths, strict=True)
    }


def test_full_disk_is_told(tmp_path, monkeypatch):
    def full(self, pipeline, path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(compiler.Compiler, "compile", full)
    with pytest.raises(
        UserError, match=f"cannot write --output-dir {tmp_path}: No space left on device"
    ):
        compile_specs(IMAGE, str(tmp_path))


def test_compiling_twice_gives_the_same_bytes(command, tmp_path):
    specs = []
    for seed in "12":  # of hashes
        done = command(
            "pipelines/compile.py",
            "--image",
            IMAGE,
            "--output-dir",
            tmp_path / seed,
            PYTHONHASHSEED=seed,
        )
        assert done.returncode == 0, done.stderr
        specs.append({path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()})
    assert specs[0] == specs[1] and sorted(specs[0]) == [
        "training-local.yaml",
        "training-vertex.yaml",
    ]


def test_each_run_of_the_compiled_spec_has_a_directory(paths):
    spec = yaml.safe_load(paths[BACKENDS.index("vertex")].read_text())
    groups = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    trained = groups["custom-training-job"]["inputs"]["parameters"]
    assert trained["display_name"]["runtimeValue"]["constant"] == "{{$.pipeline_job_name}}"
    directory = "{{$.inputs.parameters['pipelinechannel--job_dir']}}/{{$.pipeline_job_name}}/job"
    assert trained["base_output_directory"]["runtimeValue"]["constant"] == directory


def test_compile_without_an_image(command, tmp_path):
    done = command("pipelines/compile.py", "--output-dir", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Vertex AI needs an image by digest" in done.stdout
    specs = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert sorted(specs) == ["training-local.yaml", "training-vertex.yaml"]
    assert all("image: tfrecord-training:dev" in spec for spec in specs.values())


def tasks(spec: dict) -> dict[str, dict]:
    """Every task by its path of groups: what it waits for, and whether it may be cached."""
    found = {}

    def walk(component: dict, path: str) -> None:
        for key, task in component["dag"]["tasks"].items():
            inner = spec["components"][task["componentRef"]["name"]]
            name = task["taskInfo"]["name"]
            if "dag" in inner:
                walk(inner, f"{path}{name}/")
            waits = [
                component["dag"]["tasks"][d]["taskInfo"]["name"]
                for d in task.get("dependentTasks", [])
            ]
            found[path + name] = {
                "waits": sorted(waits),
                "cached": task.get("cachingOptions", {}).get("enableCache", False),
                "condition": task.get("triggerPolicy", {}).get("condition"),
                "key": key,
            }

    walk(spec["root"], "")
    return found


def test_task_graphs_are_equal_but_for_how_training_starts_and_who_looks_at_the_source(found):
    own = {"steps/digest", "steps/accepted/asked/model-get"}
    assert found["local"].keys() == found["vertex"].keys() - own
    for name, mine in found["local"].items():
        theirs = found["vertex"][name]
        waits = [step for step in theirs["waits"] if step not in ("digest", "model-get")]
        assert waits == mine["waits"] and theirs["condition"] == mine["condition"]
        assert (mine["key"] == theirs["key"]) is not name.endswith(("/train", "/predict"))


def test_only_what_converts_is_cached_and_here_where_the_notes_are_of_one_run_all_but_the_cleanup(
    found,
):
    def cached(backend: str) -> set[str]:
        return {name for name, task in found[backend].items() if task["cached"]}

    assert cached("vertex") == {"steps/convert"}
    inside = ("convert", "plan", "train", "evaluate", "gate")
    inside += ("accepted/register", "accepted/better/promote", "accepted/asked/predict")
    assert cached("local") == {f"steps/{name}" for name in inside}
