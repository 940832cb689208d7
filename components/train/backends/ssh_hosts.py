"""The host file of the ssh back end, and which replica goes to which host.

    hosts = read_hosts("hosts.txt")
    host_of = place(cluster, hosts)  # {("chief", 0): hosts[0], ("worker", 0): hosts[1], ...}

A line is `[user@]name[:port] [slots=N] [address=ADDRESS]`; `#` begins a comment:

    node1 slots=2
    me@10.0.0.7:2222
    gpu-box address=192.168.1.20     # where the other hosts reach it, if not by this name
"""

import dataclasses
import re
from collections.abc import Sequence

from common.errors import UserError
from components.train.cluster.cluster_file import Cluster

_LINE = re.compile(
    r"(?P<login>(?:[^@\s-][^@\s]*@)?(?P<name>[\w.][\w.-]*|\[[\da-fA-F:.]+\])(?::\d+)?)"
    r"(?:\s+slots=(?P<slots>[1-9]\d*))?(?:\s+address=(?P<address>\S+))?",
    re.ASCII,
)
_OPTIONS = ["-T", "-x", "-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=5", "-oServerAliveCountMax=3"]
_LOOPBACK = re.compile(r"localhost|127\..*|\[?::1\]?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that ssh reaches."""

    name: str  # As ssh knows it.
    login: str  # The same, with user and port where they are not ssh's own choice.
    address: str  # As the other hosts know it.
    slots: int = 1  # Replicas that it takes.


def read_hosts(path: str) -> list[Host]:
    """Reads a host file.

    Raises:
      UserError: If the file cannot be read, names no host, or has a wrong line, which is named.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"--hosts {path}: {error}") from None
    hosts: dict[str, Host] = {}
    for number, line in enumerate(lines, 1):
        if not (text := line.split("#")[0].strip()):
            continue
        match = _LINE.fullmatch(text)
        if not match:
            raise UserError(f"{path}:{number}: {text!r} is not [user@]name[:port] [slots=N] [address=ADDRESS]")
        name = match["name"]
        if name in hosts:
            raise UserError(f"{path}:{number}: {name} is named twice; write it once, with slots=N")
        hosts[name] = Host(
            name=name,
            login=match["login"],
            address=match["address"] or name,
            slots=int(match["slots"] or 1),
        )
    if not hosts:
        raise UserError(f"--hosts {path}: no host in it; write one a line, such as 'node1 slots=2'")
    return list(hosts.values())


def place(cluster: Cluster, hosts: Sequence[Host]) -> dict[tuple[str, int], Host]:
    """Returns the host of each replica: one host after another that has a slot left, the chief on the first."""
    members = cluster.members
    slots = [(turn, number) for number, host in enumerate(hosts) for turn in range(min(host.slots, len(members)))]
    if len(slots) < len(members):
        raise UserError(
            f"the cluster has {len(members)} replicas and the host file {len(slots)} slots; add hosts, or "
            "slots=N to their lines"
        )
    host_of = {replica: hosts[number] for replica, (_, number) in zip(members, sorted(slots), strict=False)}
    for host in host_of.values():
        if _LOOPBACK.fullmatch(host.address) and len(set(host_of.values())) > 1:
            raise UserError(f"{host.name}: the other hosts cannot reach it by this name; write '{host.name} address=A'")
    return host_of


def ssh_command(host: Host, client: Sequence[str], command: str) -> list[str]:
    """Returns the command line that runs `command` on a host; it asks for nothing, and gives a lost host up after 15 s."""
    return [*client, *_OPTIONS, f"ssh://{host.login}", command]
