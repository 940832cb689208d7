"""What of the machine this process may use: its memory and its cores, in a container what the container has."""

from __future__ import annotations

import contextlib
import os
import pathlib
import resource
from collections.abc import Iterator

_MEMBERSHIP, _GROUPS = pathlib.Path("/proc/self/cgroup"), pathlib.Path("/sys/fs/cgroup")


def memory_bytes() -> int:
    """Physical memory, or less if a control group or a limit of the process says so."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in _groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                limits.append(int((group / name).read_text()))
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        soft, _ = resource.getrlimit(kind)
        limits += [soft] if soft != resource.RLIM_INFINITY else []
    return min(limits)


def cores() -> int:
    """Cores that the process may run on, or fewer if a control group gives less time than theirs."""
    limits = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for group in _groups("cpu"):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with contextlib.suppress(OSError, ValueError):
                quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
                limits += [-(-quota // period)] if quota > 0 else []
    return min(limits)


def _groups(controller: str) -> Iterator[pathlib.Path]:
    """The control groups of this process and those above it, of both versions (Linux only)."""
    with contextlib.suppress(OSError):
        for line in _MEMBERSHIP.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                root = _GROUPS / controller if controllers else _GROUPS
                group = root / path.lstrip("/")
                yield from (directory for directory in (group, *group.parents) if directory.is_relative_to(root))
