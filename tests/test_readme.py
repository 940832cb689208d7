"""The README's commands do what it says, but for containers and the server: see tests/docker."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from tests.root import ROOT

# What stands for a reader's own names. A line that would send something only shows what it would
# send.
EXAMPLES = {
    "@sha256:...": f"@sha256:{'0' * 64}",
    "image REF": f"image us-docker.pkg.dev/p/r/i@sha256:{'0' * 64}",
    "--wait": "--dry-run",
    "PROJECT": "my-project",
    "BUCKET": "my-bucket",
}


def commands():
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    lines = re.findall(r"^(\.venv/bin/python.*?)(?: +#.*)?$", "\n".join(blocks), re.MULTILINE)
    return [line for line in lines if not re.search("(?<!-)docker|serve", line)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that looks like a clone, where the commands write."""
    folder = tmp_path_factory.mktemp("work") / "clone"
    folder.mkdir()
    for name in ("clusters", "examples", "pipelines"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def run(command, folder):
    for name, example in EXAMPLES.items():
        command = command.replace(name, example)
    if "<id>" in command:
        newest = max((folder / "runs").glob("*/run.json")).parent
        command = command.replace("<id>", newest.name)
    line = shlex.split(command)
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.pipeline
def test_readme_commands_work_as_written(folder):
    outputs = {command: run(command, folder) for command in commands()}
    asynchronous = json.loads((folder / "eval" / "d" / "evaluation.json").read_text())
    assert asynchronous["metrics"]["accuracy"] >= 0.9  # 300 steps on parameter servers
    synchronous = json.loads(max((folder / "runs").glob("*/summary.json")).read_text())
    assert synchronous["status"] == "succeeded"
    request = json.loads(outputs[".venv/bin/python pipelines/submit.py --dry-run"])
    assert request["pipelineJob"]["pipelineSpec"]["pipelineInfo"]["name"] == "training"
