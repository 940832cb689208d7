"""The host file of the ssh back end, and which replica goes to which host.

    hosts = read_hosts("hosts.txt")
    where = place(cluster, hosts)  # {("chief", 0): hosts[0], ("worker", 0): hosts[1], ...}

A line is a host as ssh knows it, then what is said of it; `#` begins a comment:

    node1 slots=2
    me@10.0.0.7 port=2222            # or me@10.0.0.7:2222
    gpu-box address=192.168.1.20     # where the other hosts reach it, if not by this name
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError, unknown

_LINE = re.compile(r"(?:([^@\s-][^@\s]*)@)?([A-Za-z0-9_.][A-Za-z0-9_.-]*|\[[0-9a-fA-F:.]+\])(?::(\d+))?")
_KEYS = ("slots", "port", "address")
_LOOPBACK = re.compile(r"localhost|127\..*|\[?::1\]?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that ssh reaches."""

    name: str  # As ssh knows it.
    address: str  # As the other hosts know it.
    user: str = ""  # To log in as; ssh's own choice if empty.
    port: int | None = None  # Of its ssh server; ssh's own choice if None.
    slots: int = 1  # Replicas that it takes.


def read_hosts(path: str) -> list[Host]:
    """Reads a host file; what it cannot say is refused with its line."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"--hosts {path}: {getattr(error, 'strerror', None) or error}") from None
    hosts: dict[str, Host] = {}
    for number, line in enumerate(lines, 1):
        if words := line.split("#")[0].split():
            host = _host(words, f"{path}:{number}")
            if host.name in hosts:
                raise UserError(f"{path}:{number}: {host.name} is there twice; write it once, with slots=N")
            hosts[host.name] = host
    if not hosts:
        raise UserError(f"--hosts {path}: no host in it; write one a line, such as 'node1 slots=2'")
    return list(hosts.values())


def _host(words: Sequence[str], where: str) -> Host:
    match = _LINE.fullmatch(words[0])
    if not match:
        raise UserError(f"{where}: {words[0]!r} is no host; write a name, an address, or user@name")
    values: dict[str, Any] = {"address": match[2], "port": int(match[3]) if match[3] else None}
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in _KEYS:
            raise UserError(f"{where}: {unknown('setting', key, _KEYS)}")
        if key == "address" and not value:
            raise UserError(f"{where}: {word!r} is not address=ADDRESS")
        if key != "address" and not (value.isdecimal() and 0 < int(value) < 65_536):
            raise UserError(f"{where}: {word!r} is not {key}=a whole number")
        values[key] = value if key == "address" else int(value)
    return Host(name=match[2], user=match[1] or "", **values)


def place(
    cluster: Cluster, hosts: Sequence[Host], *, evaluator_beside_chief: bool = False
) -> dict[tuple[str, int], Host]:
    """The host of each replica; the chief's is the first, and the evaluator's too if it has to see the chief's disk."""
    if (slots := sum(host.slots for host in hosts)) < cluster.replicas:
        raise UserError(
            f"the cluster has {cluster.replicas} replicas and the host file {slots} slots; add hosts, or "
            "slots=N to their lines"
        )
    order = cluster.members
    # One after another over the hosts that have a slot left, so that roles spread.
    turns = sorted((turn, number) for number, host in enumerate(hosts) for turn in range(min(host.slots, len(order))))
    if evaluator_beside_chief and cluster.evaluator:
        if hosts[0].slots < 2:
            raise UserError(
                f"the evaluator reads the checkpoints on the chief's host; write '{hosts[0].name} slots=2', or use a "
                "shared --job-dir"
            )
        order.insert(1, order.pop())
        turns.remove((1, 0))
        turns.insert(1, (1, 0))
    where = {replica: hosts[number] for replica, (_, number) in zip(order, turns, strict=False)}
    used = {host.name: host for host in where.values()}
    loopback = [host.name for host in used.values() if _LOOPBACK.fullmatch(host.address)]
    if loopback and len(used) > 1:
        raise UserError(
            f"{loopback[0]}: the other hosts cannot reach it by this name; write '{loopback[0]} address=ADDRESS'"
        )
    return where


def ssh_line(host: Host, ssh: Sequence[str]) -> tuple[str, ...]:
    """The client's command for this host, to which the command on the host is to be appended.

    It never asks for anything, and gives a host that is gone up after some seconds.
    """
    words = [*ssh, "-T", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    words += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
    if host.port:
        words += ["-p", str(host.port)]
    name = host.name.strip("[]")
    return (*words, f"{host.user}@{name}" if host.user else name)
