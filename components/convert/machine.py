"""How much memory this process may have: the machine's, or what a container or a limit leaves of it."""

from __future__ import annotations

import contextlib
import os
import resource

from trainer.base.machine import control_groups


def memory_bytes(root: str = "/") -> int:
    """Physical memory, or less if a control group or a limit of the process says so.

    Args:
      root: Of the file system.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                limits.append(int((group / name).read_text()))
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        soft, _ = resource.getrlimit(kind)
        limits += [soft] if soft != resource.RLIM_INFINITY else []
    return min(limits)
