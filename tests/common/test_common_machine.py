import os

import pytest

from common import machine
from common.machine import available_bytes, memory_bytes, usable_cores

ALL_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """The root directory of the machine, which is empty."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    return tmp_path


def write_groups(root, files):
    """Writes a tree of control groups, in which the process is in /a/b."""
    groups = root / "sys" / "fs" / "cgroup"
    texts = {groups / name: text for name, text in files.items()}
    for path, text in {**texts, root / "proc/self/cgroup": "9:pids:/x\n0::/a/b"}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"a/b/cpu.max": "max 100000"}, ALL_CORES),
        ({"a/b/cpu.max": "50000 100000"}, 1),
        ({"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, 1),
    ],
)
def test_usable_cores_by_control_group(root, files, cores):
    write_groups(root, files)
    assert usable_cores() == cores


def test_memory_is_of_tightest_group(root):
    limits = {"a/b/memory.max": "max", "a/memory.max": "300000000", "memory.max": "400000000"}
    write_groups(root, limits)
    assert memory_bytes() == 300_000_000

    def available(path, limit, used, inactive):
        texts = {"max": limit, "current": str(used), "stat": f"anon 7\ninactive_file {inactive}"}
        write_groups(root, {f"{path}memory.{name}": text for name, text in texts.items()})
        return available_bytes()

    assert available("a/", "5000", 3000, 500) == 2500
    assert available("", "1000", 900, 0) == 100
    assert available("a/b/", "max", 40, 0) == 100
