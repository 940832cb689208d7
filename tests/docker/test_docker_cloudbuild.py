"""The push and compile steps of cloudbuild.yaml, run against a real registry on this machine."""

import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from tests.train.train_fakes import wait_until

pytestmark = pytest.mark.docker
ROOT = Path(__file__).parents[2]


@pytest.fixture
def registry(tmp_path):
    """Address of a registry that lives as long as the test."""
    program = shutil.which("docker-registry")
    if not program:
        pytest.skip("docker-registry is not installed (Debian package docker-registry)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(tmp_path / "registry")}},
        "http": {"addr": address},
    }
    (tmp_path / "registry.yml").write_text(yaml.safe_dump(config))
    with open(tmp_path / "registry.log", "wb") as log:
        server = subprocess.Popen([program, "serve", tmp_path / "registry.yml"], stdout=log, stderr=log)
    host, port = address.split(":")
    wait_until(lambda: server.poll() or not socket.socket().connect_ex((host, int(port))), 20)
    assert server.poll() is None, (tmp_path / "registry.log").read_text()
    yield address
    server.terminate()
    server.wait(10)


def run_step(name: str, workspace: Path, **env: str) -> None:
    """Runs a step's script as Cloud Build does: /bin/sh in the workspace."""
    steps = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text())["steps"]
    script = next(step["script"] for step in steps if step["id"] == name)
    subprocess.run(["/bin/sh", "-c", script], cwd=workspace, env=os.environ | env, check=True, timeout=300)


def tiny_image(name: str, content: bytes) -> None:
    """Tags an image that holds one file."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        member = tarfile.TarInfo("file")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    subprocess.run(["docker", "import", "-", name], input=layer.getvalue(), check=True, capture_output=True)


def test_the_compiled_specs_name_the_pushed_image_by_its_digest_even_after_its_tag_moved(registry, tmp_path):
    workspace = tmp_path / "workspace"
    unused = shutil.ignore_patterns(".git", ".venv", "build", "runs", "registry", "jobs", "data", "eval", "__pycache__")
    shutil.copytree(ROOT, workspace, ignore=unused)
    python = workspace / ".venv/bin/python"  # what the test step leaves for this one
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (workspace / ".venv/.installed").touch()
    repository = f"{registry}/project/training/image"
    try:
        tiny_image(f"{repository}:1", b"first")
        run_step("push", workspace, REPOSITORY=repository, TAG="1")
        reference = (workspace / "build/image.txt").read_text().strip()
        assert re.fullmatch(re.escape(repository) + "@sha256:[0-9a-f]{64}", reference)

        tiny_image(f"{repository}:1", b"second")
        subprocess.run(["docker", "push", "--quiet", f"{repository}:1"], check=True)
        run_step("compile", workspace)
        for spec in ("training-vertex.yaml", "training-local.yaml"):
            text = (workspace / "build" / spec).read_text()
            assert set(re.findall(re.escape(repository) + r"[@:\w]*", text)) == {reference}
    finally:
        images = subprocess.check_output(["docker", "images", "--quiet", "--no-trunc", repository], text=True).split()
        subprocess.run(["docker", "rmi", "--force", *set(images)], check=False, capture_output=True)
