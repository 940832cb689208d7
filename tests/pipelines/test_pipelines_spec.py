import pathlib

import pytest
import yaml

from pipelines.compile import compile_specs
from pipelines.training import BACKENDS

IMAGE = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64
FILES = ["training-local.yaml", "training-vertex.yaml"]


@pytest.fixture(scope="module")
def specs(tmp_path_factory) -> dict[str, dict]:
    """The compiled spec of each back end."""
    paths = compile_specs(IMAGE, str(tmp_path_factory.mktemp("build")))
    texts = [pathlib.Path(path).read_text() for path in paths]
    return dict(zip(BACKENDS, map(yaml.safe_load, texts), strict=True))


def test_compiling_twice_gives_same_bytes(command, tmp_path):
    built = []
    for seed in "12":  # Of hashes.
        flags = ("--image", IMAGE, "--output-dir", tmp_path / seed)
        command("pipelines/compile.py", *flags, PYTHONHASHSEED=seed)
        built.append({path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()})
    assert built[0] == built[1] and sorted(built[0]) == FILES


def test_each_compiled_run_has_own_directory(specs):
    groups = specs["vertex"]["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    trained = groups["custom-training-job"]["inputs"]["parameters"]
    assert trained["display_name"]["runtimeValue"]["constant"] == "{{$.pipeline_job_name}}"
    directory = "{{$.inputs.parameters['pipelinechannel--job_dir']}}/{{$.pipeline_job_name}}/job"
    assert trained["base_output_directory"]["runtimeValue"]["constant"] == directory


def test_compile_without_image_is_noted(command, tmp_path):
    done = command("pipelines/compile.py", "--output-dir", tmp_path)
    assert "Vertex AI needs an image by digest" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


def tasks(spec: dict, component: dict, path: str = "") -> dict[str, dict]:
    """Returns every task by its path of groups: what it waits for, and whether it may be cached."""
    made = {}
    group = component["dag"]["tasks"]
    for key, task in group.items():
        inner = spec["components"][task["componentRef"]["name"]]
        name = f"{path}{task['taskInfo']['name']}"
        if "dag" in inner:
            made |= tasks(spec, inner, f"{name}/")
        waits = [group[each]["taskInfo"]["name"] for each in task.get("dependentTasks", [])]
        made[name] = {
            "waits": sorted(waits),
            "cached": task.get("cachingOptions", {}).get("enableCache", False),
            "condition": task.get("triggerPolicy", {}).get("condition"),
            "key": key,
        }
    return made


def test_graphs_differ_by_platform_tasks_only(specs):
    local, vertex = (tasks(specs[name], specs[name]["root"]) for name in ("local", "vertex"))
    assert local.keys() == vertex.keys() - {"steps/digest", "steps/accepted/asked/model-get"}
    for name, mine in local.items():
        theirs = vertex[name]
        waits = [step for step in theirs["waits"] if step not in ("digest", "model-get")]
        assert waits == mine["waits"] and theirs["condition"] == mine["condition"]
        assert (mine["key"] == theirs["key"]) is not name.endswith(("/train", "/predict"))
    cached = [{name for name, task in each.items() if task["cached"]} for each in (local, vertex)]
    assert cached[1] == {"steps/convert"}
    # Here the notes of what is cached are those of one run.
    inside = ("convert", "plan", "train", "evaluate", "gate")
    inside += ("accepted/register", "accepted/better/promote", "accepted/asked/predict")
    assert cached[0] == {f"steps/{name}" for name in inside}
