"""All steps of cloudbuild.yaml and of promote.yaml in order, with a real engine and registry.

The image that they build is a small one that says what it is asked to run: to push the real one
takes minutes.
"""

import json
import re
import shutil
import socket
import subprocess
import sys

import pytest
import requests
from engine import docker, remove

from tests.cloud.front import Answer, Front
from tests.deploy.build_file import ROOT, BuildFile
from tests.programs import install, run, start, wait_until

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
STEPS += ["images", "artifacts"]
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


@pytest.fixture
def specs():
    """A repository for specs: `stored` are the bodies of what was uploaded, `address` where."""
    stored = []

    def answer(request):
        stored.append((request.path, request.body.decode()))
        return Answer(200, b"training/sha256:abc")

    with Front(0, answer) as front:
        front.stored, front.address = stored, f"http://127.0.0.1:{front.server_port}"
        yield front
        front.shutdown()


@pytest.fixture
def workspace(tmp_path, registry):
    """A checkout with quick tests and image; a submission names the registry as Google's."""
    checkout = tmp_path / "workspace"
    for name in run("git", "ls-files", ":!tests").split():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name, follow_symlinks=False)
    python = PYTHON.format(python=sys.executable, registry=registry, host=HOST)
    install(checkout / ".venv/bin/python", python)
    (checkout / ".venv/.installed").touch()
    (checkout / "tests").mkdir()
    (checkout / "tests/test_it.py").write_text("def test_it():\n    assert True\n")
    verbs = (checkout / "Makefile").read_text().replace("\ntest: check", "\ntest: setup")
    (checkout / "Makefile").write_text(
        f"{verbs}\ntest: setup\n\t@$(PY) -m pytest -q -p no:cacheprovider tests\n"
    )
    (checkout / "Dockerfile").write_text(DOCKERFILE)
    return checkout


def build_file(path, registry, specs, buckets, **values):
    def elsewhere(setting):
        here = setting.replace("https://us-central1-kfp.pkg.dev", specs.address)
        return here.replace(HOST, registry).replace("gs://", f"{buckets}/")

    values = {"_BUCKET": "my-bucket", "COMMIT_SHA": COMMIT, **values}
    return BuildFile(path=path, values=values, elsewhere=elsewhere)


def digest(registry, tag):
    """Returns the digest that the registry names for a tag."""
    url = f"http://{registry}/v2/my-project/training/tfrecord-training/manifests/{tag}"
    accept = {"Accept": "application/vnd.docker.distribution.manifest.v2+json"}
    return requests.head(url, headers=accept).headers["Docker-Content-Digest"]


def test_pushed_digest_is_submitted_and_promoted(registry, specs, workspace, tmp_path):
    """It is the one that was tried, compiled and stored too."""
    here = registry, specs, tmp_path / "buckets"
    done, printed = build_file("cloudbuild.yaml", *here).run(workspace)
    assert sorted(done) == sorted(STEPS), printed
    name = f"{registry}/my-project/training/tfrecord-training"
    pushed = f"{name}@{digest(registry, 'b-1')}"
    assert (workspace / "build/image.txt").read_text().strip() == pushed
    assert f"{COMMIT} runs: pipelines.doctor --image" in printed
    for spec in ("training-vertex.yaml", "training-local.yaml"):
        text = (tmp_path / "buckets/my-bucket/specs/b-1" / spec).read_text()
        assert set(re.findall(re.escape(name) + r"[@:\w]*", text)) == {pushed}
    [(path, upload)] = specs.stored
    assert path == "/my-project/pipelines" and f"{COMMIT},latest" in upload and pushed in upload
    request, _ = json.JSONDecoder().raw_decode(printed, printed.rindex("\n{\n") + 1)
    assert request["parent"] == "projects/my-project/locations/us-central1"
    assert pushed.replace(registry, HOST) in json.dumps(request)

    # Of the same commit, in another project: nothing is built.
    remove(network="cloudbuild")
    docker("network create cloudbuild")
    promote = "deploy/builds/promote.yaml"
    try:
        values = {"_PRODUCTION": "production", "_BUCKET": "other", "TAG_NAME": "v1.0.0"}
        (workspace / "build/image.txt").unlink()
        done, printed = build_file(promote, *here, **values).run(workspace)
        assert done == ["find", "submit"], printed
    finally:
        remove(network="cloudbuild")
    assert digest(registry, "v1.0.0") == pushed.split("@")[1]
    place = f"--image {pushed} --project production --location us-central1 --bucket gs://other"
    domain = "production.iam.gserviceaccount.com"
    accounts = f"--service-account training-pipeline@{domain} "
    accounts += f"--set training_service_account=training-train@{domain}"
    assert f"{COMMIT} runs: pipelines.submit {place} {accounts} --yes" in printed
    missing = build_file(promote, *here, TAG_NAME="v1.0.1", COMMIT_SHA="f" * 40)
    assert "no image of commit ffff" in missing.run(workspace)[1]
