"""All steps of cloudbuild.yaml and of deploy/builds/promote.yaml in order, with a real engine and a real registry.

The image that they build is a small one that says what it is asked to run: to push the real one
takes minutes.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.request

import pytest
import yaml
from engine import docker, remove

from tests.cloud.front import Answer, Front, Request
from tests.deploy.build_file import ROOT, BuildFile
from tests.train.train_fakes import wait_until

pytestmark = pytest.mark.docker
DOCKERFILE = r"""
ARG ACCELERATOR=cpu
FROM python:3.11-slim AS packages
FROM packages
ARG CODE_VERSION
RUN printf '#!/bin/sh\necho "$CODE_VERSION runs: $*"\n' >/entrypoint && chmod 755 /entrypoint
ENV CODE_VERSION=$CODE_VERSION
ENTRYPOINT ["/entrypoint"]
"""
HOST = "us-central1-docker.pkg.dev"
PYTHON = """#!{python}
import os, sys
words = sys.argv[1:]
if "pipelines/submit.py" in words:
    words = [word.replace("{registry}", "{host}") for word in words]
os.execv("{python}", ["{python}", *words])
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
STEPS = ["settings", "test", "build", "smoke", "push", "compile", "store", "submit"]


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
        server = subprocess.Popen(
            [program, "serve", tmp_path / "registry.yml"], stdout=log, stderr=log
        )
    host, port = address.split(":")
    wait_until(lambda: server.poll() or not socket.socket().connect_ex((host, int(port))), 300)
    assert server.poll() is None, (tmp_path / "registry.log").read_text()
    yield address
    server.terminate()
    server.wait(10)
    # By their names here: an id may be that of an image that was there before.
    names = docker(
        "images", "--format", "{{.Repository}}:{{.Tag}} {{.Repository}}@{{.Digest}}"
    ).split()
    ours = [name for name in names if name.startswith(address) and "<none>" not in name]
    subprocess.run(["docker", "rmi", *ours], check=False, capture_output=True)


@pytest.fixture
def specs():
    """A repository for specs: `stored` are the bodies of what was uploaded, `address` where."""
    stored = []

    def answer(request: Request) -> Answer:
        stored.append((request.path, request.body.decode()))
        return Answer(200, b"training/sha256:abc")

    with Front(0, answer) as front:
        front.stored, front.address = stored, f"http://127.0.0.1:{front.server_port}"
        yield front
        front.shutdown()


@pytest.fixture
def workspace(tmp_path, registry):
    """A checkout with tests and an image that take no time; what is submitted names the registry as Google's."""
    checkout = tmp_path / "workspace"
    unused = (
        ".git",
        ".venv",
        "build",
        "runs",
        "registry",
        "jobs",
        "data",
        "eval",
        "__pycache__",
        "tests",
    )
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(*unused))
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON.format(python=sys.executable, registry=registry, host=HOST))
    python.chmod(0o755)
    (checkout / ".venv/.installed").touch()
    (checkout / "tests").mkdir()
    (checkout / "tests/test_it.py").write_text("def test_it():\n    assert True\n")
    verbs = (checkout / "Makefile").read_text().replace("\ntest: check", "\ntest: setup")
    (checkout / "Makefile").write_text(
        f"{verbs}\ntest: setup\n\t@$(PY) -m pytest -q -p no:cacheprovider tests\n"
    )
    (checkout / "Dockerfile").write_text(DOCKERFILE)
    return checkout


def build_file(path: str, registry: str, specs: Front | None = None, **values: str) -> BuildFile:
    def elsewhere(setting: str) -> str:
        here = setting.replace(HOST, registry)
        return here.replace("https://us-central1-kfp.pkg.dev", specs.address) if specs else here

    given = {"_BUCKET": "my-bucket", "COMMIT_SHA": COMMIT, **values}
    return BuildFile(path=path, values=given, elsewhere=elsewhere)


def digest(registry: str, tag: str) -> str:
    """Of what the registry has under a tag, by its own account."""
    manifest = "application/vnd.docker.distribution.manifest.v2+json"
    url = f"http://{registry}/v2/my-project/training/tfrecord-training/manifests/{tag}"
    with urllib.request.urlopen(
        urllib.request.Request(url, headers={"Accept": manifest}, method="HEAD")
    ) as answer:
        return answer.headers["Docker-Content-Digest"]


def test_the_digest_that_was_pushed_is_the_one_that_was_tried_compiled_stored_submitted_and_promoted(
    registry, specs, workspace
):
    done, told = build_file("cloudbuild.yaml", registry, specs).run(workspace)
    assert done == STEPS, told
    pushed = f"{registry}/my-project/training/tfrecord-training@{digest(registry, 'b-1')}"
    assert (workspace / "build/image.txt").read_text().strip() == pushed
    assert f"{COMMIT} runs: pipelines.doctor --image" in told
    for spec in ("training-vertex.yaml", "training-local.yaml"):
        text = (workspace / "build" / spec).read_text()
        assert set(re.findall(re.escape(pushed.split("@")[0]) + r"[@:\w]*", text)) == {pushed}
    [(path, upload)] = specs.stored
    assert path == "/my-project/pipelines" and f"{COMMIT},latest" in upload and pushed in upload
    request = json.loads(told[told.rindex("\n{\n") :])
    assert request["parent"] == "projects/my-project/locations/us-central1"
    assert pushed.replace(registry, HOST) in json.dumps(request)

    # Of the same commit, in another project: nothing is built.
    remove(network="cloudbuild")
    docker("network", "create", "cloudbuild")
    try:
        values = {"_PRODUCTION": "production", "_BUCKET": "other", "TAG_NAME": "v1.0.0"}
        promote = build_file("deploy/builds/promote.yaml", registry, **values)
        (workspace / "build/image.txt").unlink()
        done, told = promote.run(workspace)
        assert done == ["find", "submit"], told
    finally:
        remove(network="cloudbuild")
    assert digest(registry, "v1.0.0") == pushed.split("@")[1]
    accounts = (
        "--service-account training-pipeline",
        "--set training_service_account=training-train",
    )
    place = f"--image {pushed} --project production --location us-central1 --bucket gs://other"
    place = " ".join(
        [place, *(f"{account}@production.iam.gserviceaccount.com" for account in accounts), "--yes"]
    )
    assert f"{COMMIT} runs: pipelines.submit {place}" in told
    missing = build_file(
        "deploy/builds/promote.yaml", registry, TAG_NAME="v1.0.1", COMMIT_SHA="f" * 40
    )
    assert "no image of commit ffff" in missing.run(workspace)[1]
