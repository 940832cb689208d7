"""What this machine is, and what of it a process may use, as far as control groups and limits leave it (Linux): cores, memory.

`root` is where the file system of the control groups begins.
"""

import contextlib
import os
import pathlib
import platform
import resource
import subprocess
from collections.abc import Iterator

import psutil

_ANSWER_S = 20.0
# Instructions that decide how fast it computes: of matrices, and of vectors.
_MATRIX = ["amx_tile", "amx_bf16", "amx_fp16", "amx_int8", "sme"]
_VECTOR = ["avx2", "fma", "avx_vnni", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni"]
_VECTOR += ["asimd", "sve", "sve2", "bf16"]  # of ARM
# Of both versions of control groups: files of the limit, of what is used, and what of that the system gives back when asked.
_MEMORY = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def control_groups(controller: str, root: str = "/") -> Iterator[pathlib.Path]:
    """The directories of the control groups, of both versions, that this process is in, from its own up to the topmost."""
    membership, mount = pathlib.Path(root) / "proc/self/cgroup", pathlib.Path(root) / "sys/fs/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            top = mount / controller if controllers else mount
            # In a container the path may be the host's, and what is mounted is the group itself.
            group = top / path.lstrip("/")
            yield from (directory for directory in (group, *group.parents) if directory.is_relative_to(top))


def processor(root: str = "/") -> str:
    """Name of the processor, and which instructions for matrices and vectors it has, in words."""
    has = {*fact("flags", root).split(), *fact("Features", root).split()}
    kinds = {"matrix": [name for name in _MATRIX if name in has], "vector": [name for name in _VECTOR if name in has]}
    told = "; ".join(f"{kind} instructions: {' '.join(names) or 'none'}" for kind, names in kinds.items())
    return f"{fact('model name', root) or platform.machine() or 'processor'} ({told if has else 'instructions: not known'})"


def fact(key: str, root: str = "/") -> str:
    """What the system tells of the first processor by that key; empty if it does not."""
    told = pathlib.Path(root) / "proc/cpuinfo"
    for line in told.read_text().splitlines() if told.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def usable_cores(root: str = "/") -> int:
    """Cores that this process may run on, or fewer if a control group gives less time than theirs."""
    limits = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for group in control_groups("cpu", root):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
                limits += [-(-quota // period)] if quota > 0 else []
    return min(limits)


def memory_bytes(root: str = "/") -> int:
    """Physical memory, or less if a control group or a limit of the process says so."""
    limits = [psutil.virtual_memory().total, *(limit for limit, _ in _memory_limits(root))]
    soft = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS))
    return min(limits + [limit for limit in soft if limit != resource.RLIM_INFINITY])


def available_bytes(root: str = "/") -> int:
    """Bytes that can be taken without swapping or being killed."""
    left = [psutil.virtual_memory().available, *(limit - used for limit, used in _memory_limits(root))]
    return max(0, min(left))


def gpu_free_bytes() -> int:
    """Free memory of that GPU of this machine which has least, as nvidia-smi tells; 0 where it does not."""
    query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        told = subprocess.run(query, capture_output=True, text=True, check=True, timeout=_ANSWER_S).stdout
        return min(int(line) for line in told.splitlines()) << 20
    return 0


def _memory_limits(root: str) -> Iterator[tuple[int, int]]:
    """Limit, and bytes that are used and not given back, of each control group that limits memory."""
    for group in control_groups("memory", root):
        for limit, used, spare in _MEMORY:
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                bound = int((group / limit).read_text())
                stat = group / "memory.stat"
                fields = dict(line.split() for line in stat.read_text().splitlines()) if stat.exists() else {}
                held = int((group / used).read_text()) if (group / used).exists() else 0
                yield bound, held - int(fields.get(spare, 0))
