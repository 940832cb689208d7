"""Whole requests that were reviewed; `python -m tests.pipelines.vertex.test_pipelines_golden` writes them anew.

Look at `git diff` before a commit. The spec in them is left out: it is the same for all but images
and steps' machines.
"""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import re

import pytest
import yaml

from components.train.backends.job_settings import JobSettings
from pipelines import submit
from pipelines.cloud_options import CloudOptions

ROOT = pathlib.Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "pipelines" / "golden"
SOURCES = sorted(path.stem for path in (ROOT / "tests" / "train" / "sources").glob("*.yaml"))


def text(*flags: str) -> str:
    """The request that `--dry-run` prints, with an invented name and no spec."""
    with (
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        os.environ.pop("GOOGLE_CLOUD_PROJECT", None)
        assert submit.main([*flags, "--dry-run"]) == 0
    request = json.loads(re.sub(r"training-\d{8}-\d{6}-\w{4}", "training-1", out.getvalue()))
    spec = request["pipelineJob"].pop("pipelineSpec")
    containers = {name: e["container"] for name, e in spec["deploymentSpec"]["executors"].items()}
    request["machines of steps"] = {
        name: c["resources"] for name, c in containers.items() if "resources" in c
    }
    tasks = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    for name in ("plan", "custom-training-job"):
        inputs = tasks[name]["inputs"]["parameters"].items()
        request[f"constants of {name}"] = {
            k: v["runtimeValue"]["constant"] for k, v in inputs if "runtimeValue" in v
        }
    values = request["pipelineJob"]["runtimeConfig"]["parameterValues"]
    values["cluster"] = json.loads(values["cluster"])
    return json.dumps(request, indent=1, sort_keys=True) + "\n"


def requests() -> dict[str, str]:
    """By name of the golden file."""
    found = {
        f"source-{stem}": text("--cluster", f"tests/train/sources/{stem}.yaml") for stem in SOURCES
    }
    return {**found, "every-knob": text("--config", "tests/pipelines/golden/run.yaml")}


@pytest.mark.parametrize("name", [*(f"source-{stem}" for stem in SOURCES), "every-knob"])
def test_the_request_is_the_one_that_was_reviewed(name):
    cluster = ["--cluster", f"tests/train/sources/{name.removeprefix('source-')}.yaml"]
    flags = ["--config", "tests/pipelines/golden/run.yaml"] if name == "every-knob" else cluster
    assert (GOLDEN / f"{name}.json").read_text() == text(*flags)


def test_file_of_every_knob_has_all_keys():
    known = yaml.safe_load((GOLDEN / "run.yaml").read_text())
    keys = {
        field.name for each in (CloudOptions, JobSettings) for field in dataclasses.fields(each)
    }
    assert keys <= known.keys()


if __name__ == "__main__":
    for name, content in requests().items():
        (GOLDEN / f"{name}.json").write_text(content)
