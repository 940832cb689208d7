"""Steps of cloudbuild.yaml and promote.yaml that need a real engine and registry.

The image that they build is a small one: to push the real one takes minutes.
"""

import shutil
import socket
import subprocess

import pytest
import requests
from engine import docker

from tests.deploy.build_file import ROOT, BuildFile
from tests.programs import start, wait_until

pytestmark = pytest.mark.docker
DOCKERFILE = """
ARG ACCELERATOR=cpu
FROM scratch AS packages
WORKDIR /packages
FROM packages
ARG CODE_VERSION
WORKDIR /$CODE_VERSION
"""
HOST = "us-central1-docker.pkg.dev"
NAMES = "{{.Repository}}:{{.Tag}} {{.Repository}}@{{.Digest}}"


@pytest.fixture
def registry(tmp_path):
    """Address of a registry that lives as long as the test."""
    program = shutil.which("docker-registry")
    if not program:
        pytest.skip("docker-registry is not installed (Debian package docker-registry)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    storage = f"{{filesystem: {{rootdirectory: {tmp_path}/registry}}}}"
    config = f"{{version: 0.1, storage: {storage}, http: {{addr: '{address}'}}}}"
    (tmp_path / "registry.yml").write_text(config)
    with open(tmp_path / "registry.log", "wb") as log:
        server = start(program, "serve", tmp_path / "registry.yml", stdout=log)
    host, port = address.split(":")
    wait_until(lambda: server.poll() or not socket.socket().connect_ex((host, int(port))), 300)
    assert server.poll() is None, (tmp_path / "registry.log").read_text()
    yield address
    server.terminate()
    server.wait(10)
    # By their names here: an id may be that of an image that was there before.
    names = docker(f"images --format '{NAMES}'").split()
    ours = [name for name in names if name.startswith(address) and "<none>" not in name]
    subprocess.run(["docker", "rmi", *ours], check=False, capture_output=True)


def test_pushed_digest_is_promoted(registry, tmp_path):
    def step(path, name, **values):
        build = BuildFile(
            path=path, values=values, elsewhere=lambda text: text.replace(HOST, registry)
        )
        return build.step(name, tmp_path)

    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    file, images = tmp_path / "build/image.txt", []
    for path, name in (
        ("cloudbuild.yaml", "build"),
        ("cloudbuild.yaml", "push"),
        ("deploy/builds/promote.yaml", "find"),
    ):
        done = step(path, name, COMMIT_SHA="0123", TAG_NAME="v1.0.0")
        assert done.returncode == 0, done.stdout
        images.append(file.read_text().strip() if file.exists() else "")
        file.unlink(missing_ok=True)
    repository = "my-project/training/tfrecord-training"
    accept = {"Accept": "application/vnd.docker.distribution.manifest.v2+json"}
    manifest = requests.head(f"http://{registry}/v2/{repository}/manifests/v1.0.0", headers=accept)
    digest = manifest.headers["Docker-Content-Digest"]
    assert images == ["", *[f"{registry}/{repository}@{digest}"] * 2]

    missing = step("deploy/builds/promote.yaml", "find", COMMIT_SHA="4567")
    assert missing.returncode == 2 and "no image of commit 4567" in missing.stdout
