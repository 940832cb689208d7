"""What `docker run IMAGE ...` runs."""

import subprocess

import pytest

pytestmark = pytest.mark.docker


def run(image: str, *command: str) -> subprocess.CompletedProcess:
    return subprocess.run(["docker", "run", "--rm", image, *command], capture_output=True, text=True, timeout=120)


STEPS = ("convert", "train", "evaluate", "register", "cleanup")


@pytest.mark.parametrize("module", [*(f"components.{step}" for step in STEPS), "trainer.task"])
def test_components_and_the_trainer_run_by_their_modules_names(image, module):
    done = run(image, module, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")


def test_other_commands_run_as_they_are_with_their_exit_code(image):
    done = run(image, "sh", "-c", 'echo "$0|$1"; exit 3', "a b", "c")
    assert (done.returncode, done.stdout) == (3, "a b|c\n")
    assert run(image, "python3", "-c", "import components, pipelines, trainer").returncode == 0


def test_without_a_command_it_says_what_it_can_run(image):
    done = run(image)
    assert done.returncode == 2
    assert "components.convert" in done.stderr


def test_the_installed_packages_agree_with_each_other(image):
    done = run(image, "python3", "-m", "pip", "check")
    assert done.returncode == 0, done.stdout


def test_the_image_adds_only_the_sources_and_no_setting_of_the_machine_that_built_it(image):
    listing = run(image, "sh", "-c", "ls -A /app; find /app -name '*.pyc' -o -name tests").stdout.split()
    assert set(listing) <= {
        *("clusters", "components", "docker", "gates", "pipelines", "trainer", "pyproject.toml", "requirements.lock"),
    }
    history = subprocess.run(
        ["docker", "history", "--no-trunc", "--format", "{{.CreatedBy}}", image], capture_output=True, text=True
    ).stdout
    assert "ENTRYPOINT" in history
    assert "index-url" not in history and "://" not in history
