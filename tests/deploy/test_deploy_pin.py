"""`deploy/pin` against a registry that asks for a token first, as Docker Hub and Artifact Registry do."""

import pathlib
import subprocess

import pytest
from google.api_core import exceptions

from tests.cloud.front import Answer, Front, Request

ROOT = pathlib.Path(__file__).parents[2]


class Registry:
    """Images by name, tag and digest."""

    def __init__(self) -> None:
        self.digests = {
            ("library/python", "3.11-slim"): "sha256:" + "a" * 64,
            ("builders/docker", "latest"): "sha256:" + "b" * 64,
        }

    def answer(self, request: Request) -> Answer:
        if request.path == "/token":
            assert request.query["service"] == "a registry"
            return Answer(200, {"token": request.query["scope"]})
        _, _, *name, _, tag = request.path.split("/")
        needed = f"repository:{'/'.join(name)}:pull"
        if request.headers["Authorization"] != f"Bearer {needed}":
            realm = f'Bearer realm="http://{request.host}/token",service="a registry",scope="{needed}"'
            return Answer(401, b"", {"WWW-Authenticate": realm})
        if found := self.digests.get(("/".join(name), tag)):
            return Answer(200, b"{}", {"Docker-Content-Digest": found})
        raise exceptions.NotFound("manifest unknown")


@pytest.fixture
def registry():
    made = Registry()
    with Front(0, made.answer) as front:
        made.address = f"127.0.0.1:{front.server_port}"
        yield made
        front.shutdown()


@pytest.fixture
def files(registry, tmp_path):
    dockerfile, build = tmp_path / "Dockerfile", tmp_path / "build.yaml"
    python = f"{registry.address}/library/python:3.11-slim"
    dockerfile.write_text(f"ARG A=cpu\nFROM {python} AS base\nFROM base AS lock-cpu\nFROM lock-${{A}}\nRUN true\n")
    build.write_text(
        f"steps:\n  - id: a\n    name: {registry.address}/builders/docker\n  - id: b\n    name: {python}\n"
    )
    return dockerfile, build


def pin(*files: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "deploy/pin", *files], capture_output=True, text=True, timeout=60)


def test_every_image_gets_the_digest_of_its_tag_and_a_newer_one_later(registry, files):
    for letter in "ac":
        registry.digests["library/python", "3.11-slim"] = new = "sha256:" + letter * 64
        done = pin(*files)
        assert done.returncode == 0, done.stderr
        python, docker = f"/library/python:3.11-slim@{new}", "/builders/docker@sha256:" + "b" * 64
        assert [path.read_text().count(f"{registry.address}{python}") for path in files] == [1, 1]
        assert f"    name: {registry.address}{docker}\n" in files[1].read_text()
        assert files[0].read_text().endswith(f"{new} AS base\nFROM base AS lock-cpu\nFROM lock-${{A}}\nRUN true\n")


def test_an_image_that_is_not_there_changes_nothing(registry, files):
    before = [path.read_text() for path in files]
    del registry.digests["library/python", "3.11-slim"]
    done = pin(*files)
    assert done.returncode == 1 and "its registry names no digest; nothing was changed" in done.stderr
    assert [path.read_text() for path in files] == before


def test_all_images_of_the_project_are_found(tmp_path):
    """By their names at public registries, which nobody asks here: the first that does not answer is named."""
    listed = subprocess.run(
        ["bash", "-c", "curl() { echo \"$*\" >&2; return 7; }; export -f curl; deploy/pin Dockerfile cloudbuild.yaml"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert listed.returncode == 1 and "error: gcr.io does not answer" in listed.stderr
