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
import pathlib, sys, time
from components.register.directory import DirectoryRegistry
root, model, times, run = sys.argv[1:]
print("ready", flush=True)
sys.stdin.read()
for _ in range(int(times)):
    print(DirectoryRegistry(root).register("m", model, {"run": run}))
"""
# Stops after the first file was copied.
STUCK = """
import shutil, sys, time
from components.register.directory import DirectoryRegistry
copy = shutil.copyfileobj
shutil.copyfileobj = lambda *files: (copy(*files), sys.stdout.write("copying\\n"), sys.stdout.flush(), time.sleep(60))
DirectoryRegistry(sys.argv[1]).register("m", sys.argv[2], {})
"""


@pytest.fixture
def registry(tmp_path):
    return DirectoryRegistry(str(tmp_path / "registry"))


@pytest.fixture
def add(registry, job):
    """Adds `count` versions."""

    def run(count):
        model = job() / "model"
        return [registry.register("m", str(model), {}) for _ in range(count)]

    return run


def test_layout_is_tensorflow_servings(add, registry, tmp_path):
    (version,) = add(1)
    served = tmp_path / "registry" / "m" / "1"
    assert str(served) == registry.find("m", version).model_dir
    assert {path.name for path in served.iterdir()} == {"saved_model.pb", "variables", "version.json"}
    # TensorFlow Serving takes every directory whose name is a number for a version.
    assert [path.name for path in served.parent.iterdir() if path.name.isdigit()] == ["1"]


@pytest.mark.cluster
def test_processes_of_one_run_share_version(tmp_path, job, registry):
    model = job() / "model"
    line = [sys.executable, "-c", ADD, str(tmp_path / "registry"), str(model), "2", "r1"]
    writers = [subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
        writer.stdin.close()
    assert [writer.stdout.read().split() for writer in writers] == [["1", "1"]] * 4
    for writer in writers:
        assert writer.wait() == 0
        writer.stdout.close()
    assert len(registry.versions("m")) == 1 and registry.versions("other") == []
    assert entries(tmp_path) == [".lock", "1", "history.jsonl"]
    assert [registry.version_of("m", name) for name in ("r1", "r2")] == ["1", None]


def entries(tmp_path):
    return sorted(path.name for path in (tmp_path / "registry" / "m").iterdir())


@pytest.mark.cluster
def test_killed_copy_leaves_nothing(tmp_path, job, registry):
    model = str(job() / "model")
    line = [sys.executable, "-c", STUCK, str(tmp_path / "registry"), model]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "copying\n"
        writer.send_signal(signal.SIGKILL)
    (partial,) = (tmp_path / "registry" / "m").glob(".partial-*")
    assert any(partial.rglob("*"))
    assert registry.versions("m") == []
    assert registry.register("m", model, {}) == "1"
    assert entries(tmp_path) == [".lock", "1", "history.jsonl"]


@pytest.mark.parametrize(
    "kills", [pytest.param(20, marks=pytest.mark.cluster), pytest.param(200, marks=pytest.mark.slow)]
)
def test_killed_writers_lose_nothing(tmp_path, job, registry, kills):
    root, model = tmp_path / "registry", job() / "model"
    program = pathlib.Path(__file__).with_name("killed_writers.py")
    subprocess.run([sys.executable, program, root, model, "8", str(kills), "0"], check=True)
    last = registry.register("m", str(model), {})  # whoever writes next ends what was begun

    files = {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    added, deleted, aliases = [], [], {}
    for event in registry.history("m"):
        version = event["version"]
        assert event["event"] == "add" or (version in added and version not in deleted)
        if event["event"] == "add":
            added.append(version)
        elif event["event"] == "delete":
            assert version not in aliases.values()
            deleted.append(version)
        else:
            aliases = {alias: event[alias] for alias in (CHAMPION, PREVIOUS) if event[alias]}
    assert len(set(added)) == len(added) and len(deleted) == len(set(deleted)) and added[-1] == last
    there = {path.name for path in (root / "m").iterdir() if path.name.isdigit()}
    assert there == set(added) - set(deleted) == {version.number for version in registry.versions("m")}
    for version in there:
        found = {
            str(p.relative_to(root / "m" / version)): p.read_bytes()
            for p in (root / "m" / version).rglob("*")
            if p.is_file()
        }
        assert json.loads(found.pop("version.json"))["version"] == version and found == files
    assert json.loads((root / "m" / "aliases.json").read_text()) == OURS | aliases
    assert registry.aliases("m") == aliases

    history = [(event["event"], event["version"]) for event in registry.history("m")]
    done = [tuple(line.split()) for line in (tmp_path / "done").read_text().splitlines()]
    assert len(done) >= kills and {"add", "promote"} <= {what for what, _ in done}
    for event in set(done):
        assert history.count(event) >= done.count(event)


def test_failed_registration_leaves_nothing(tmp_path, registry, job):
    directory = job()
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write to the registry"):
        DirectoryRegistry(str(tmp_path / "file")).register("m", str(directory / "model"), {})
    (directory / "model" / "broken").symlink_to(directory / "nowhere")
    with pytest.raises(UserError, match=r"cannot write to the registry .*broken"):
        registry.register("m", str(directory / "model"), {})
    assert entries(tmp_path) == [".lock"]
    with pytest.raises(UserError, match="no SavedModel here"):
        registry.register("n", str(directory), {})
    with pytest.raises(UserError, match=r"cannot be used .*not implemented"):
        registry.register("n", memory_store.AWAY, {})
    assert not (tmp_path / "registry" / "n").exists()


def test_aliases_are_written_for_others(tmp_path, add, registry):
    add(3)
    aliases = tmp_path / "registry" / "m" / "aliases.json"
    assert registry.promote("m", "1", instead_of=None)
    assert json.loads(aliases.read_text()) == {**OURS, "champion": "1"}
    assert registry.promote("m", "2", instead_of="1")
    assert json.loads(aliases.read_text()) == {**OURS, "champion": "2", "previous": "1"}


def test_number_is_not_given_again(tmp_path, add, registry):
    add(3)
    for version in "23":
        (tmp_path / "registry" / "m" / version).rename(tmp_path / f"gone {version}")
    assert registry.register("m", str(tmp_path / "job" / "model"), {}) == "4"


def test_unknown_model_leaves_no_directory(tmp_path, registry):
    for use in (lambda: registry.rollback("m"), lambda: registry.delete("m", "1"), lambda: registry.find("m", "1")):
        with pytest.raises(UserError):
            use()
    assert not (tmp_path / "registry").exists()


def test_version_without_record_is_foreign(tmp_path, add, registry, capsys):
    add(1)
    (tmp_path / "registry" / "m" / "1" / "version.json").unlink()
    with pytest.raises(UserError, match=r"the files of version 1 .* are gone"):
        registry.promote("m", "1", instead_of=None)
    assert f"{tmp_path}/registry/m/1 was not made by this registry" in capsys.readouterr().err
