import pathlib

import pytest
import yaml

from pipelines.compile import compile_specs
from pipelines.training import BACKENDS

IMAGE = "us-docker.pkg.dev/p/r/i@sha256:" + "a" * 64
FILES = ["training-local.yaml", "training-vertex.yaml"]


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
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
    tasks = specs["vertex"]["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    trained, located = (
        tasks[name]["inputs"]["parameters"] for name in ("custom-training-job", "locate")
    )
    for parameter in (trained["display_name"], located["run_id"]):
        assert parameter["runtimeValue"]["constant"] == "{{$.pipeline_job_name}}"
    directory = {"outputParameterKey": "job_dir", "producerTask": "locate"}
    assert trained["base_output_directory"] == {"taskOutputParameter": directory}


def test_compile_without_image_is_noted(command, tmp_path):
    done = command("pipelines/compile.py", "--output-dir", tmp_path)
    assert "Vertex AI needs an image by digest" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES


def test_cached_steps_of_each_platform(specs):
    def cached(spec):
        groups = [
            each["dag"]["tasks"]
            for each in (*spec["components"].values(), spec["root"])
            if "dag" in each
        ]
        tasks = [task for group in groups for task in group.values()]
        return {
            task["taskInfo"]["name"]
            for task in tasks
            if task.get("cachingOptions", {}).get("enableCache")
        }

    assert cached(specs["vertex"]) == {"convert"}
    # Here the notes of what is cached are those of one run.
    steps = "convert plan train evaluate gate register promote predict"
    assert cached(specs["local"]) == {*steps.split()}
