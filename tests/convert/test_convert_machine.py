from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from components.convert import machine


def test_there_is_memory():
    assert 10**8 < machine.memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce it")
def test_a_limit_of_the_process_counts():
    run = subprocess.run(
        [sys.executable, "-c", "from components.convert import machine; print(machine.memory_bytes())"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (4 * 10**8, 4 * 10**8)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) == 4 * 10**8


@pytest.fixture
def groups(tmp_path):
    """Makes a tree of control groups below a root of its own, and what the kernel says of the process."""

    def make(membership: str, **files: str) -> str:
        for name, text in files.items():
            path = tmp_path / "sys/fs/cgroup" / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        (tmp_path / "proc/self").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/self/cgroup").write_text(membership)
        return str(tmp_path)

    return make


def test_the_least_limit_of_a_group_and_those_above_it_counts(groups):
    root = groups("0::/a/b\n", a__b__memory_DOT_max="max", a__memory_DOT_max="300000000", memory_DOT_max="400000000")
    assert machine.memory_bytes(root) == 300_000_000


def test_the_groups_of_the_first_version_too(groups):
    root = groups(
        "7:memory:/x\n0::/\n",
        memory__memory_DOT_limit_in_bytes="9223372036854771712",
        memory__x__memory_DOT_limit_in_bytes="200000000",
    )
    assert machine.memory_bytes(root) == 200_000_000
