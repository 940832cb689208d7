import os
import pathlib
import resource
import subprocess
import sys

import psutil
import pytest

from common.machine import available_bytes, control_groups, memory_bytes, processor, usable_cores

V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


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


def test_a_system_without_control_groups_has_all_cores_and_memory(tmp_path):
    there, root = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), str(tmp_path)
    assert not list(control_groups("cpu", root))
    assert usable_cores(root) >= 1
    assert 10**8 < available_bytes(root) <= there
    assert 10**8 < memory_bytes(root) <= there


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce it")
def test_a_limit_of_the_process_counts():
    run = subprocess.run(
        [sys.executable, "-c", "from common.machine import memory_bytes; print(memory_bytes())"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (4 * 10**8, 4 * 10**8)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) == 4 * 10**8


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "300000000", "memory.max": "400000000"}, 300_000_000),
        (
            "7:memory:/x\n0::/",
            {"memory/memory.limit_in_bytes": str(2**63 - 1), "memory/x/memory.limit_in_bytes": "200000000"},
            200_000_000,
        ),
    ],
    ids=["v2", "v1"],
)
def test_the_least_limit_of_a_group_and_those_above_it_counts(tmp_path, membership, files, expected):
    assert memory_bytes(groups(tmp_path, membership, files)) == expected


@pytest.mark.parametrize(
    ("line", "mount", "names"), [("0::/a/b", "", V2), ("4:cpu,memory:/a/b", "memory/", V1)], ids=["v2", "v1"]
)
def test_memory_is_what_the_tightest_group_leaves(tmp_path, line, mount, names):
    def group(path: str, limit: str, used: int, inactive: int) -> int:
        texts = zip((*names[:2], "memory.stat"), (limit, str(used), f"anon 7\n{names[2]} {inactive}"), strict=True)
        files = {f"{mount}{path}{name}": text for name, text in texts}
        return available_bytes(groups(tmp_path, f"9:pids:/x\n{line}", files))

    assert group("a/b/", str(2**62), 0, 0) == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    assert group("a/", "5000", 3000, 500) == 2500
    assert group("", "1000", 900, 0) == 100
    assert group("a/b/", "50" if "limit" in names[0] else "max", 40, 0) == (10 if "limit" in names[0] else 100)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ("flags : fpu avx2 amx_bf16 amx_tile", "matrix instructions: amx_tile amx_bf16; vector instructions: avx2"),
        ("flags : fpu sse", "matrix instructions: none; vector instructions: none"),
        ("Features : fp asimd bf16", "matrix instructions: none; vector instructions: asimd bf16"),
    ],
)
def test_a_processor_is_named_with_its_instructions_for_matrices_and_vectors(tmp_path, told, named):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor : 0\nmodel name : Fast\n{told}\n\n{told} sve sve2 sme\n")
    assert processor(str(tmp_path)) == f"Fast ({named})"
