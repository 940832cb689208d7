"""How much memory this process may still take: of the machine, and of the cgroups that a container puts it in."""

from __future__ import annotations

import contextlib

import psutil

from trainer.base.machine import control_groups

# By version of cgroups: files of the limit, of what is used, and what of that the system gives back when asked.
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def available_bytes(root: str = "/") -> int:
    """Bytes that can be taken without swapping or being killed."""
    left = [psutil.virtual_memory().available]
    for group in control_groups("memory", root):
        for limit, used, spare in (_V1, _V2):
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                bound = int((group / limit).read_text())
                fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                left.append(bound - int((group / used).read_text()) + int(fields.get(spare, 0)))
    return max(0, min(left))
