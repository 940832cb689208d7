"""What `docker run IMAGE ...` runs, and with how few rights."""

import ast
import os
import subprocess
from pathlib import Path

import pytest
from engine import docker

from common.version import code_version

pytestmark = pytest.mark.docker
ROOT = Path(__file__).parents[2]
USER = 12345  # nobody that the image knows
LOCKED = (
    "--network",
    "none",
    "--read-only",
    "--tmpfs",
    "/tmp",
    "--cap-drop",
    "ALL",
    "--user",
    f"{USER}:{USER}",
)
STEPS = ("convert", "train", "evaluate", "register", "predict", "serve", "deploy", "cleanup")


def run(image: str, *command: str, engine: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["docker", "run", "--rm", *engine, image, *command], capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "module", [*(f"components.{step}" for step in STEPS), "trainer.task", "pipelines.doctor"]
)
def test_components_and_the_trainer_run_by_their_modules_names(image, module):
    done = run(image, module, "--help", engine=LOCKED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")


def test_other_commands_run_as_they_are_with_their_exit_code(image):
    done = run(image, "sh", "-c", 'echo "$0|$1"; exit 3', "a b", "c")
    assert (done.returncode, done.stdout) == (3, "a b|c\n")


def test_without_a_command_it_says_what_it_can_run(image):
    done = run(image)
    assert done.returncode == 2
    assert "components.convert" in done.stderr


def test_the_image_says_what_it_was_made_of_as_its_commands_do(image):
    labels = docker(
        "inspect", "--format", "{{range $k, $v := .Config.Labels}}{{$k}}={{$v}} {{end}}", image
    ).split()
    assert "org.opencontainers.image.version=0.1.0" in labels
    said = run(image, "components.train", "--version").stdout.strip()
    assert said.removesuffix("+") == code_version().removesuffix("+")  # run.sh builds what is here
    assert f"org.opencontainers.image.revision={said}" in labels or not (ROOT / ".git").exists()


def test_the_smoke_test_passes_without_a_network_or_a_file_system_to_write_to(image):
    done = run(
        image,
        "pipelines.doctor",
        "--image",
        engine=("--network", "none", "--read-only", "--tmpfs", "/tmp"),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_was_taken_out_of_the_packages_is_imported_nowhere_in_the_sources(image):
    """Also inside functions, which importing the modules does not run."""
    wanted = set()
    for path in (
        path
        for package in ("common", "trainer", "components", "pipelines")
        for path in (ROOT / package).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wanted |= {f"import {alias.name}" for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                wanted |= {f"from {node.module} import {alias.name}" for alias in node.names}
    assert {"from google.cloud import aiplatform", "from docker.types import Mount"} <= wanted
    # Beam has an environment of its own.
    lines = sorted(
        line for line in wanted if "__future__" not in line and "apache_beam" not in line
    )
    done = run(image, "python", "-c", "\n".join(lines), engine=LOCKED)
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_step_runs_as_nobody_without_network_on_a_file_system_that_it_cannot_write_to(
    image, tmp_path
):
    os.chown(tmp_path, USER, USER) if os.getuid() == 0 else tmp_path.chmod(0o777)
    here = ("--volume", f"{tmp_path}:{tmp_path}", "--workdir", str(tmp_path))

    def step(name: str, *flags: str) -> None:
        done = run(image, f"components.{name}", *flags, engine=(*LOCKED, *here))
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    step("convert", "--output", "data")
    trainer = ("--data-dir", "data", "--job-dir", "job", "--train-steps", "300")
    step("train", "--cluster", "/app/clusters/local-sync.yaml", "--", *trainer)
    step("evaluate", "--model-dir", "job/model", "--data-dir", "data", "--output", "eval")
    model = ("--model-dir", "job/model", "--evaluation", "eval/evaluation.json")
    step("register", "add", *model, "--registry", "registry", "--name", "m")
    (tmp_path / "run.json").write_text(
        '{"id": "r", "runner": "docker", "cluster": "c", "arguments": {}}'
    )
    step("cleanup", "--run", ".")
    assert (tmp_path / "registry/m/1/saved_model.pb").exists()
    owners = {path.stat().st_uid for path in tmp_path.rglob("*") if path.name != "run.json"}
    if os.getuid() != 0:  # pytest could not delete them
        run(image, "sh", "-c", f"rm -rf {tmp_path}/*", engine=(*LOCKED, *here))
    assert owners == {USER}


def test_the_image_is_small_and_adds_only_the_sources_and_no_setting_of_the_machine_that_built_it(
    image,
):
    listing = run(
        image, "sh", "-c", "ls -A /app; find /app -name '*.pyc' -o -name tests"
    ).stdout.split()
    assert set(listing) <= {
        *(
            "clusters",
            "common",
            "components",
            "docker",
            "gates",
            "pipelines",
            "trainer",
            "pyproject.toml",
        ),
        *("requirements.lock", "requirements-gpu.lock", "LICENSE", "NOTICE"),
    }
    history = docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", image)
    assert "ENTRYPOINT" in history
    assert "index-url" not in history and "://" not in history
    assert int(docker("inspect", "--format", "{{.Size}}", image)) <= 2.2e9
