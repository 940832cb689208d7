"""The locks, the image's context, and the rules of the house that a machine can check."""

import re
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.root import ROOT

# By lock, the extras of the project that it holds beside the dependencies.
LOCKS = {"": ("cpu",), "-dev": ("cpu", "tune", "dev"), "-gpu": ("gpu",), "-beam": ("beam",)}


def locked(name):
    """Returns the versions of a lock by package, as `==1.2`: one for each platform or Python."""
    text = (ROOT / f"requirements{name}.lock").read_text()
    assert "://" not in text
    versions: dict[str, set[str]] = {}
    for line in re.findall(r"^\w.*(?= \\$)", text, re.MULTILINE):  # pip wants hashes and pins.
        requirement = Requirement(line)
        pin = str(requirement.specifier)
        versions.setdefault(canonicalize_name(requirement.name), set()).add(pin)
    return versions


@pytest.mark.parametrize("name", LOCKS)
def test_lock_holds_declared_dependencies(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][extra] for extra in LOCKS[name]]
    versions = locked(name)
    for declared in sum(extras, project["dependencies"]):
        requirement = Requirement(declared)
        for pin in versions[canonicalize_name(requirement.name)]:
            assert pin.removeprefix("==") in requirement.specifier, f"{declared}: {pin}"


def test_locks_have_versions_of_image():
    run, dev, gpu = (locked(name) for name in ("", "-dev", "-gpu"))
    assert run.items() <= dev.items()
    run.pop("tensorflow-cpu")
    assert run == {name: pins for name, pins in gpu.items() if not name.startswith("nvidia-")}


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
