"""The locks, the image's context, and the rules of the house that a machine can check."""

import re
import subprocess

import pytest

from tests.root import ROOT


def locked(name):
    """Returns the name and the version of each package of a lock."""
    text = (ROOT / f"requirements{name}.lock").read_text()
    assert "://" not in text
    return {*re.findall(r"^(\w\S*)==(\S+)", text, re.MULTILINE)}


def test_locks_have_versions_of_image():
    run, dev, gpu = (locked(name) for name in ("", "-dev", "-gpu"))
    assert len(run) > 100 and run <= dev
    own = {name for name, _ in run ^ gpu}
    assert own == {"tensorflow-cpu", *(name for name in own if name.startswith("nvidia-"))}


def test_image_gets_small_context():
    rules = (ROOT / ".dockerignore").read_text()
    assert "\n*\n" in rules
    chosen = [ROOT / path for path in re.findall("^!(.*)", rules, re.MULTILINE)]
    files = [file for path in chosen for file in (path, *path.rglob("*")) if file.is_file()]
    assert sum(file.stat().st_size for file in files if file.suffix != ".pyc") < 2_500_000
    dockerfile = (ROOT / "Dockerfile").read_text()
    # And it needs no BuildKit and names no index or certificate.
    assert not re.search(r"--mount|^# *syntax|index-url|\.crt|://", dockerfile, re.MULTILINE)


@pytest.fixture(scope="module")
def files():
    """Everything that is committed; whoever uses the checkout has other files in it."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.splitlines() if (path := ROOT / name).is_file()]


def test_no_file_names_personal_place(files):
    personal = re.compile(rb"/(?:work|root|home|Users)/\w")
    assert not [str(path) for path in files if personal.search(path.read_bytes())]


def test_notice_names_data_of_others(files):
    notice = (ROOT / "NOTICE").read_text()
    data = {path.parent for path in files if path.suffix in (".gz", ".csv", ".png", ".npz")}
    assert data and all(f"{folder.relative_to(ROOT)}/\n" in notice for folder in data)
