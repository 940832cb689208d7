import json
import pathlib

import killed_writers
import pytest

from components.register.directory import DirectoryRegistry
from components.register.registry import CHAMPION, PREVIOUS
from tests.convert.dataset_files import read_folder
from tests.errors import user_error


@pytest.fixture
def root(tmp_path):
    return tmp_path / "registry"


@pytest.fixture
def registry(root):
    return DirectoryRegistry(str(root))


@pytest.fixture
def model(job):
    return str(job() / "model")


def entries(root):
    return sorted(path.name for path in (root / "m").iterdir())


@pytest.mark.parametrize(
    "kills",
    [pytest.param(20, marks=pytest.mark.cluster), pytest.param(200, marks=pytest.mark.slow)],
)
def test_killed_writers_lose_nothing(root, model, registry, kills):
    killed_writers.run(str(root), model, kills)
    last = registry.register("m", model, {})  # Whoever writes next ends what was begun.

    added, deleted, aliases, events = [], [], {}, []
    for event in registry.history("m"):
        version = event["version"]
        events.append((event["event"], version))
        assert event["event"] == "add" or (version in added and version not in deleted)
        if event["event"] == "add":
            added.append(version)
        elif event["event"] == "delete":
            assert version not in aliases.values()
            deleted.append(version)
        else:
            aliases = {alias: event[alias] for alias in (CHAMPION, PREVIOUS) if event[alias]}
    assert len(set(added)) == len(added) and len(set(deleted)) == len(deleted) and added[-1] == last
    left = set(added) - set(deleted)
    # TensorFlow Serving takes every directory whose name is a number for a version. A copy that
    # was killed before it had our mark might be somebody else's, and stays.
    marked = {name for name in entries(root) if not name.startswith(".partial-")}
    assert marked == left | {".lock", "aliases.json", "history.jsonl"}
    assert {version.number for version in registry.versions("m")} == left
    files = read_folder(pathlib.Path(model))
    for version in left:
        copied = read_folder(root / "m" / version)
        assert json.loads(copied.pop("version.json"))["version"] == version and copied == files
    assert registry.aliases("m") == aliases

    done = [tuple(line.split()) for line in (root.parent / "done").read_text().splitlines()]
    for event in set(done):
        assert events.count(event) >= done.count(event)


def test_failed_registration_leaves_nothing(root, model, registry):
    pathlib.Path(model, "broken").symlink_to("nowhere")
    with user_error(r"cannot write to the registry .*broken"):
        registry.register("m", model, {})
    assert entries(root) == [".lock"]
    with user_error("no SavedModel here"):
        registry.register("m", f"{root}/none", {})


def test_number_of_lost_version_is_taken(root, model, registry):
    for _ in range(2):
        registry.register("m", model, {})
    (root / "m/2").rename(root / "lost")
    assert registry.register("m", model, {}) == "3"


def test_number_of_deleted_version_stays_taken(model, registry):
    assert [registry.register("m", model, {}) for _ in range(2)] == ["1", "2"]
    registry.delete("m", "2")
    assert registry.register("m", model, {}) == "3"
