import json
import pathlib
import signal
import subprocess
import sys

import memory_store
import pytest

from common.errors import UserError
from common.google_cloud import MANAGED_BY
from components.register.directory import DirectoryRegistry
from components.register.registry import CHAMPION, PREVIOUS

OURS = dict([MANAGED_BY])
ADD = """
import sys
from components.register.directory import DirectoryRegistry
print("ready", flush=True)
sys.stdin.read()
for _ in range(2):
    print(DirectoryRegistry(sys.argv[1]).register("m", sys.argv[2], {"run": "r1"}))
"""
# Stops after the first file was copied.
STUCK = """
import shutil, sys, time
from components.register.directory import DirectoryRegistry
copy = shutil.copyfileobj


def copy_and_stop(*files):
    copy(*files)
    sys.stdout.write("copying\\n")  # At once, since several threads copy.
    sys.stdout.flush()
    time.sleep(60)


shutil.copyfileobj = copy_and_stop
DirectoryRegistry(sys.argv[1]).register("m", sys.argv[2], {})
"""


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


def contents(directory):
    return {
        path.relative_to(directory): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_layout_is_tensorflow_servings(root, model, registry):
    version = registry.register("m", model, {})
    served = root / "m" / "1"
    assert str(served) == registry.find("m", version).model_dir
    assert {path.name for path in served.iterdir()} == {
        "saved_model.pb",
        "variables",
        "version.json",
    }
    # TensorFlow Serving takes every directory whose name is a number for a version.
    assert [name for name in entries(root) if name.isdigit()] == ["1"]


@pytest.mark.cluster
def test_processes_of_one_run_share_version(root, model, registry):
    line = [sys.executable, "-c", ADD, root, model]
    writers = [
        subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
        writer.stdin.close()
    for writer in writers:
        assert writer.stdout.read().split() == ["1", "1"]
        assert writer.wait() == 0
        writer.stdout.close()
    assert len(registry.versions("m")) == 1
    assert entries(root) == [".lock", "1", "history.jsonl"]


@pytest.mark.cluster
def test_killed_copy_leaves_nothing(root, model, registry):
    with subprocess.Popen(
        [sys.executable, "-c", STUCK, root, model], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "copying\n"
        writer.send_signal(signal.SIGKILL)
    (partial,) = (root / "m").glob(".partial-*")
    assert any(partial.rglob("*"))
    assert registry.versions("m") == []
    assert registry.register("m", model, {}) == "1"
    assert entries(root) == [".lock", "1", "history.jsonl"]


@pytest.mark.parametrize(
    "kills",
    [pytest.param(20, marks=pytest.mark.cluster), pytest.param(200, marks=pytest.mark.slow)],
)
def test_killed_writers_lose_nothing(root, model, registry, kills):
    program = pathlib.Path(__file__).with_name("killed_writers.py")
    subprocess.run([sys.executable, program, root, model, "8", str(kills), "0"], check=True)
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
    assert {name for name in entries(root) if name.isdigit()} == left
    assert {version.number for version in registry.versions("m")} == left
    files = contents(pathlib.Path(model))
    for version in left:
        copied = contents(root / "m" / version)
        record = json.loads(copied.pop(pathlib.Path("version.json")))
        assert record["version"] == version and copied == files
    assert json.loads((root / "m" / "aliases.json").read_text()) == OURS | aliases
    assert registry.aliases("m") == aliases

    done = [tuple(line.split()) for line in (root.parent / "done").read_text().splitlines()]
    assert len(done) >= kills and {"add", "promote"} <= {verb for verb, _ in done}
    for event in set(done):
        assert events.count(event) >= done.count(event)


def test_failed_registration_leaves_nothing(root, model, registry, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write to the registry"):
        DirectoryRegistry(str(tmp_path / "file")).register("m", model, {})
    pathlib.Path(model, "broken").symlink_to("nowhere")
    with pytest.raises(UserError, match=r"cannot write to the registry .*broken"):
        registry.register("m", model, {})
    assert entries(root) == [".lock"]
    for place, message in (
        (str(tmp_path), "no SavedModel here"),
        (memory_store.AWAY, "cannot be used .*not implemented"),
    ):
        with pytest.raises(UserError, match=message):
            registry.register("n", place, {})
    assert not (root / "n").exists()


def test_aliases_are_written_for_others(root, model, registry):
    for champion in (None, "1"):
        assert registry.promote("m", registry.register("m", model, {}), instead_of=champion)
    assert json.loads((root / "m" / "aliases.json").read_text()) == {
        **OURS,
        "champion": "2",
        "previous": "1",
    }


def test_number_of_lost_version_is_taken(root, model, registry):
    for _ in range(2):
        registry.register("m", model, {})
    (root / "m" / "2").rename(root / "lost")
    assert registry.register("m", model, {}) == "3"


def test_unknown_model_leaves_no_directory(root, registry):
    for use in (
        lambda: registry.rollback("m"),
        lambda: registry.delete("m", "1"),
        lambda: registry.find("m", "1"),
    ):
        with pytest.raises(UserError):
            use()
    assert not root.exists()


def test_version_without_record_is_foreign(root, model, registry, capsys):
    registry.register("m", model, {})
    (root / "m" / "1" / "version.json").unlink()
    with pytest.raises(UserError, match=r"the files of version 1 .* are gone"):
        registry.promote("m", "1", instead_of=None)
    assert f"{root}/m/1 was not made by this registry" in capsys.readouterr().err
