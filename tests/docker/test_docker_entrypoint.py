"""Tests of the programs that `docker run IMAGE ...` runs, and of their rights."""

import ast
import os

import pytest
from engine import docker

from tests import programs
from tests.root import ROOT

pytestmark = pytest.mark.docker
USER = 12345  # nobody that the image knows
ALONE = "--network none --read-only --tmpfs /tmp"
LOCKED = f"{ALONE} --cap-drop ALL --user {USER}:{USER}"


def run(image, *command, engine="", code=0):
    line = ["docker", "run", "--rm", *engine.split(), image, *command]
    return programs.run(*line, code=code)


def test_command_runs_as_it_is(image):
    command = ["sh", "-c", 'echo "$0|$1|$(id -u)"; exit 3', "a b", "c"]
    assert run(image, *command, code=3) == "a b|c|1000\n"
    assert "components.convert" in run(image, code=2)


def test_smoke_test_needs_no_network(image):
    run(image, "pipelines.doctor", "--image", engine=ALONE)


def test_all_imports_of_sources_are_there(image):
    """Imports inside functions count too, which importing the modules does not run."""
    wanted = set()
    for package in ("common", "trainer", "components", "pipelines"):
        paths = (ROOT / package).rglob("*.py")
        # What searches for settings is not in the image.
        for path in (each for each in paths if "/tun" not in str(each.relative_to(ROOT))):
            nodes = ast.walk(ast.parse(path.read_text()))
            imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
            wanted |= {ast.unparse(node) for node in imports}
    # Beam has an environment of its own.
    lines = [line for line in wanted if "__future__" not in line and "apache_beam" not in line]
    run(image, "python", "-c", "\n".join(sorted(lines)), engine=LOCKED)


def test_steps_run_without_rights(image, tmp_path):
    """Every step runs as nobody, without network, on a file system that it cannot write to."""
    os.chown(tmp_path, USER, USER) if os.getuid() == 0 else tmp_path.chmod(0o777)
    here = f"{LOCKED} --volume {tmp_path}:{tmp_path} --workdir {tmp_path}"
    record = '{"id": "r", "runner": "docker", "cluster": "c", "arguments": {}}'
    (tmp_path / "run.json").write_text(record)
    trainer = "--data-dir data --job-dir job --train-steps 300"
    for step in (
        "convert --output data",
        f"train --cluster /app/clusters/local-sync.yaml -- {trainer}",
        "evaluate --model-dir job/model --data-dir data --output eval",
        "register add --model-dir job/model --evaluation eval/evaluation.json "
        "--registry registry --name m",
        "cleanup --run .",
    ):
        run(image, *f"components.{step}".split(), engine=here)
    assert (tmp_path / "registry/m/1/saved_model.pb").exists()
    owners = {path.stat().st_uid for path in tmp_path.rglob("*") if path.name != "run.json"}
    if os.getuid() != 0:  # pytest could not delete them
        run(image, "sh", "-c", f"rm -rf {tmp_path}/*", engine=here)
    assert owners == {USER}


def test_image_has_sources_alone(image):
    """It is small, and has no setting of the machine that built it."""
    listing = run(image, "sh", "-c", "ls -A /app; find /app -name '*.pyc' -o -name tests")
    known = "clusters common components docker gates pipelines trainer pyproject.toml "
    known += "requirements.lock requirements-gpu.lock LICENSE NOTICE"
    assert {*listing.split()} <= {*known.split()}
    history = docker(f"history --no-trunc --format '{{{{.CreatedBy}}}}' {image}")
    assert "ENTRYPOINT" in history
    assert "index-url" not in history and "://" not in history
    assert int(docker(f"inspect --format '{{{{.Size}}}}' {image}")) <= 2.2e9
