"""A whole request that was reviewed: `python -m tests.pipelines.vertex.test_pipelines_golden`.

That writes it anew; look at `git diff` before a commit. The spec in it is left out: it is the same
for all requests but for images and steps' machines.
"""

import contextlib
import dataclasses
import io
import json
import os
import re

import yaml

from components.train.backends.job_settings import JobSettings
from pipelines import submit
from pipelines.cloud_options import CloudOptions
from tests.root import ROOT

GOLDEN = ROOT / "tests" / "pipelines" / "golden"
CONFIG, REQUEST = GOLDEN / "run.yaml", GOLDEN / "every-knob.json"


def text():
    """Returns the request that `--dry-run` prints, with an invented name and no spec."""
    with (
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        os.environ.pop("GOOGLE_CLOUD_PROJECT", None)
        assert submit.main(["--config", str(CONFIG), "--dry-run"]) == 0
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


def test_request_equals_reviewed_one():
    assert REQUEST.read_text() == text()


def test_knob_file_has_all_keys():
    config = yaml.safe_load(CONFIG.read_text())
    options = (*dataclasses.fields(CloudOptions), *dataclasses.fields(JobSettings))
    assert {field.name for field in options} <= config.keys()


if __name__ == "__main__":
    REQUEST.write_text(text())
