"""What of this machine a process may use: its cores, and the control groups that a container puts it in (Linux)."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator


def control_groups(controller: str, root: str = "/") -> Iterator[pathlib.Path]:
    """The directories of the control groups, of both versions, that this process is in, from its own up to the topmost.

    Args:
      controller: What they limit, such as `memory`.
      root: Of the file system.
    """
    membership, mount = pathlib.Path(root) / "proc/self/cgroup", pathlib.Path(root) / "sys/fs/cgroup"
    for line in membership.read_text().splitlines() if membership.exists() else ():
        _, controllers, path = line.split(":", 2)
        if not controllers or controller in controllers.split(","):
            top = mount / controller if controllers else mount
            # In a container the path may be the host's, and what is mounted is the group itself.
            group = top / path.lstrip("/")
            yield from (directory for directory in (group, *group.parents) if directory.is_relative_to(top))


def usable_cores(root: str = "/") -> int:
    """Cores that this process may run on, or fewer if a control group gives less time than theirs.

    Args:
      root: Of the file system.
    """
    limits = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    for group in control_groups("cpu", root):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
                limits += [-(-quota // period)] if quota > 0 else []
    return min(limits)
