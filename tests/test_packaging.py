"""The locks, the image's context, and the rules of the house that a machine can check."""

import hashlib
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = (
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-gpu.lock",
    "requirements-beam.lock",
)


def locked(name: str) -> dict[str, list[Requirement]]:
    """A lock's requirements by package; a package may have one for each platform or Python."""
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / name).read_text().splitlines():
        if line[0].isalnum():
            requirement = Requirement(line.removesuffix("\\"))
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_only_exact_versions_with_hashes(name):
    text = (ROOT / name).read_text()
    assert "://" not in text
    for block in re.split(r"\n(?=\S)", text.strip()):
        head, *hashes = block.split("\\\n")
        requirement = Requirement(head)
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], head
        assert hashes and all(
            re.fullmatch(r" +--hash=sha256:[0-9a-f]{64} *", line) for line in hashes
        ), head


def test_the_locks_hold_every_declared_dependency_in_a_version_it_allows():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for name, declared in (
        ("requirements.lock", project["dependencies"] + extras["cpu"]),
        ("requirements-dev.lock", project["dependencies"] + extras["cpu"] + extras["dev"]),
        ("requirements-gpu.lock", project["dependencies"] + extras["gpu"]),
        ("requirements-beam.lock", project["dependencies"] + extras["beam"]),
    ):
        lock = locked(name)
        for requirement in map(Requirement, declared):
            for pin in lock[canonicalize_name(requirement.name)]:
                (version,) = (specifier.version for specifier in pin.specifier)
                assert version in requirement.specifier, f"{name}: {pin} is not {requirement}"
    run, dev, gpu, _ = map(
        locked, LOCKS
    )  # Developers and GPUs get the versions that the image gets.
    assert all(set(map(str, pins)) == set(map(str, dev[name])) for name, pins in run.items())
    assert {
        name: {str(pin.specifier) for pin in pins}
        for name, pins in run.items()
        if name != "tensorflow-cpu"
    } == {
        name: {str(pin.specifier) for pin in pins}
        for name, pins in gpu.items()
        if not name.startswith("nvidia-")
    }


def test_the_image_gets_a_small_context_that_holds_all_it_copies():
    rules = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and line[0] != "#"
    ]
    assert rules[0] == "*"
    chosen = [ROOT / rule[1:] for rule in rules if rule[0] == "!"]
    assert all(path.exists() for path in chosen)
    files = [
        file
        for path in chosen
        for file in (path.rglob("*") if path.is_dir() else [path])
        if file.is_file()
    ]
    assert sum(file.stat().st_size for file in files if file.suffix != ".pyc") < 2_500_000
    dockerfile = (ROOT / "Dockerfile").read_text()
    for source in re.findall(r"^COPY (\S+) \S+$", dockerfile, re.MULTILINE):
        assert source == "." or ROOT / source in chosen
    # And it needs no BuildKit and names no index or certificate.
    assert not re.search(r"--mount|^# *syntax|index-url|\.crt|://", dockerfile, re.MULTILINE)


def tracked_files() -> list[Path]:
    """Everything that is or would be committed."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for name in listing.stdout.splitlines() if (path := ROOT / name).is_file()]


def test_few_files_have_more_than_450_lines():
    lengths = {
        str(path): len(path.read_text().splitlines())
        for path in tracked_files()
        if path.suffix == ".py"
    }
    assert len([path for path, length in lengths.items() if length > 450]) <= 5
    assert not {path: length for path, length in lengths.items() if length > 520}


def test_no_file_names_a_place_on_somebodys_machine():
    personal = re.compile(rb"/(?:work|root|home|Users)/\w")
    found = {path: personal.findall(path.read_bytes()) for path in tracked_files()}
    assert not {str(path): names for path, names in found.items() if names}


def test_the_licence_is_the_whole_of_apache_2_and_data_of_others_is_in_the_notice():
    text = (ROOT / "LICENSE").read_bytes()
    assert (
        hashlib.sha256(text).hexdigest()
        == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    )
    notice = (ROOT / "NOTICE").read_text()
    data = {
        path.parent for path in tracked_files() if path.suffix in (".gz", ".csv", ".png", ".npz")
    }
    assert data and all(f"{folder.relative_to(ROOT)}/\n" in notice for folder in data)
