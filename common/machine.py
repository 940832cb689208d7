"""The processor, the cores and the memory that this process may use.

Limits of control groups (Linux, version 2) are respected.
"""

import contextlib
import os
import pathlib
import platform
import re
import subprocess
from collections.abc import Iterator

ROOT = pathlib.Path("/")  # Contains `proc` and `sys`.
_ANSWER_S = 20.0
# Instruction sets for matrices and vectors, which decide how fast a processor computes; from `sme`
# on they are of ARM.
_INSTRUCTIONS = re.compile(
    "amx_(tile|bf16|fp16|int8)|avx2|fma|avx_vnni|avx512(f|_bf16|_fp16|_vnni)|sme|asimd|sve2?|bf16"
)


def processor() -> str:
    """Returns the processor's name and, in brackets, its instruction sets that make it fast."""
    available = f"{fact('flags')} {fact('Features')}".split()
    names = " ".join(filter(_INSTRUCTIONS.fullmatch, available))
    return f"{fact('model name') or platform.machine()} ({names or 'no fast instructions known'})"


def fact(key: str) -> str:
    """Returns the value of a key of the first processor in `/proc/cpuinfo`; empty without one."""
    match = re.search(rf"^{key}\s*:(.*)", _read(ROOT / "proc/cpuinfo"), re.MULTILINE)
    return match[1].strip() if match else ""


def usable_cores() -> int:
    """Returns how many cores' worth of computing time this process may use.

    This is the number of cores that it may run on, or less if a control group limits the time; that
    limit is rounded up.
    """
    limits = [
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ]
    for group in _control_groups():
        quota, _, period = _read(group / "cpu.max").partition(" ")
        if quota.isdigit():  # Otherwise it is "max", or there is no such file.
            limits.append(-(-int(quota) // int(period)))
    return min(limits)


def memory_bytes() -> int:
    """Returns the bytes of physical memory, or fewer if a control group limits them."""
    import psutil  # Slow to import, for a conversion of a second.

    return min([psutil.virtual_memory().total, *(limit for limit, _ in _memory_limits())])


def available_bytes() -> int:
    """Returns the bytes that this process can allocate without swapping or being killed."""
    import psutil

    return max(
        0,
        min(
            [psutil.virtual_memory().available, *(limit - used for limit, used in _memory_limits())]
        ),
    )


def gpu_free_bytes() -> int:
    """Returns the free bytes of the GPU that has least; 0 if nvidia-smi gives no answer."""
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        answer = subprocess.run(
            query, capture_output=True, text=True, check=True, timeout=_ANSWER_S
        ).stdout
        return min(map(int, answer.split())) << 20
    return 0


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Yields limit and use in bytes of each control group that limits memory.

    Use leaves out the file cache that the kernel can take back.
    """
    for group in _control_groups():
        limit = _read(group / "memory.max").strip()
        if limit.isdigit():
            fields = dict(line.split() for line in _read(group / "memory.stat").splitlines())
            used = int(_read(group / "memory.current") or 0)
            yield int(limit), used - int(fields.get("inactive_file", 0))


def _control_groups() -> Iterator[pathlib.Path]:
    """Yields the directories of this process's control groups, from its own up to the topmost."""
    top = ROOT / "sys/fs/cgroup"
    for line in _read(ROOT / "proc/self/cgroup").splitlines():
        if line.startswith("0::/"):
            # In a container this path may be the one on the host. Its directory is missing here,
            # and the container's own group is mounted at the top.
            group = top / line.removeprefix("0::/")
            yield from (
                directory for directory in (group, *group.parents) if directory.is_relative_to(top)
            )


def _read(path: pathlib.Path) -> str:
    return path.read_text() if path.exists() else ""
