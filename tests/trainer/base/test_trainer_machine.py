from __future__ import annotations

import os
import pathlib

import pytest

from trainer.base.machine import control_groups, usable_cores


def groups(root: pathlib.Path, membership: str, files: dict[str, str]) -> str:
    """A tree of control groups below a root of its own, and what the kernel says of the process."""
    for name, text in {"proc/self/cgroup": membership, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return str(root)


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/a", {"a/cpu.max": "max 100000"}, None),
        ("0::/a", {"a/cpu.max": "50000 100000"}, 1),
        ("0::/a/b", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, 1),
        ("4:cpu,cpuacct:/x\n0::/", {"cpu/x/cpu.cfs_quota_us": "90000", "cpu/x/cpu.cfs_period_us": "100000"}, 1),
        ("1:cpu:/y", {"cpu/y/cpu.cfs_quota_us": "-1", "cpu/y/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_a_container_has_the_cores_whose_time_it_is_given(tmp_path, membership, files, cores):
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert usable_cores(groups(tmp_path, membership, files)) == (cores or affinity)


def test_groups_are_those_of_the_process_up_to_the_topmost_and_no_others(tmp_path):
    root = groups(tmp_path, "7:memory:/x/y\n4:cpu:/z\n0::/", {})
    found = [str(group.relative_to(tmp_path / "sys/fs/cgroup")) for group in control_groups("memory", root)]
    assert found == ["memory/x/y", "memory/x", "memory", "."]


def test_a_system_without_control_groups_has_all_cores(tmp_path):
    assert not list(control_groups("cpu", str(tmp_path)))
    assert usable_cores(str(tmp_path)) >= 1
