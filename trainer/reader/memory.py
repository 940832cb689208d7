"""How much memory this process may still take: of the machine, and of the cgroups that a container puts it in."""

from __future__ import annotations

import pathlib

import psutil

# By version of cgroups: files of the limit, of what is used, and what of that the system gives back when asked.
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = ("memory.max", "memory.current", "inactive_file")


def available_bytes(root: str = "/") -> int:
    """Bytes that can be taken without swapping or being killed."""
    groups = pathlib.Path(root) / "proc/self/cgroup"
    left = [psutil.virtual_memory().available]
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            left += _left(pathlib.Path(root) / "sys/fs/cgroup", path, _V2)
        elif "memory" in controllers.split(","):
            left += _left(pathlib.Path(root) / "sys/fs/cgroup/memory", path, _V1)
    return max(0, min(left))


def _left(mount: pathlib.Path, path: str, names: tuple[str, str, str]) -> list[int]:
    """Of each group from the process's up to the root that has a limit."""
    # In a container the path may be the host's, and what is mounted is the group itself.
    group, left = mount / path.lstrip("/"), []
    for directory in (group, *group.parents):
        limit, used, statistics = (directory / name for name in (*names[:2], "memory.stat"))
        try:
            bound = limit.read_text().strip()
            if bound != "max":
                fields = dict(line.split() for line in statistics.read_text().splitlines())
                left.append(int(bound) - int(used.read_text()) + int(fields.get(names[2], 0)))
        except OSError:
            pass
        if directory == mount:
            break
    return left
