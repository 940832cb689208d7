"""The ssh back end: replicas on the hosts of a host file.

A line of the file is `[user@]name[:port] [slots=N] [address=ADDRESS]`; `#` begins a comment:

    node1 slots=2
    me@10.0.0.7:2222
    gpu-box address=192.168.1.20     # where the other hosts reach it, if not by this name

Every host is asked first: whether it answers, its TensorFlow, cores, GPUs and free ports, and whether it sees the job
directory, which all hosts share (NFS, or a bucket). Our code, or the user's, is copied to a place of the replica's own
and removed at its end.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
import trainer
from common.cli import flag
from common.errors import UserError
from common.storage.storage import is_remote
from components.train.backends import probe, ssh_client
from components.train.backends.backend import Job
from components.train.backends.local import LocalBackend, LocalOptions
from components.train.backends.resources import Machine, divide
from components.train.cluster.cluster_file import Cluster
from components.train.supervision.plan import ATTEMPT, Plan, Replica

_LINE = re.compile(
    r"(?P<login>(?:[^@\s-][^@\s]*@)?(?P<name>[\w.][\w.-]*|\[[\da-fA-F:.]+\])(?::\d+)?)"
    r"(?:\s+slots=(?P<slots>[1-9]\d*))?(?:\s+address=(?P<address>\S+))?",
    re.ASCII,
)
_LOOPBACK = re.compile(r"localhost|127\..*|\[?::1\]?")
# ssh asks for nothing, and gives a lost host up after 15 s.
_CONNECTION = [
    "-T",
    "-x",
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=5",
    "-oServerAliveCountMax=3",
]
_ANSWER_S = 20.0  # ssh gives a host that does not answer up after 10 s; a program there may be slow to load.
_ssh = functools.partial(flag, group="other hosts (--backend ssh)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SshOptions(LocalOptions):
    """Flags of the ssh back end."""

    hosts: str | None = _ssh(str, "hosts, one a line: [user@]name[:port] [slots=N] [address=A]", metavar="FILE")
    ssh_command: str | None = _ssh(str, "client and options, 'ssh -i KEY' for example (ssh without)", metavar="LINE")
    remote_python: str | None = _ssh(str, "on the hosts (without, the path of the one that runs this)", metavar="PATH")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """A machine that ssh reaches."""

    name: str  # As ssh knows it.
    login: str  # The same, with user and port where they are not ssh's own choice.
    address: str  # As the other hosts know it.
    slots: int = 1  # Replicas that it takes.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts that a host reports of itself; see `probe`."""

    executable: str
    tensorflow: str | None
    cores: int
    gpus: Sequence[str]
    ports: Sequence[int]
    sees_marker: bool


class SshBackend(LocalBackend):
    """Runs each replica on a host of a host file, beside a program that ends it when the connection is lost.

    Ignored here: machine and accelerator types, alternatives, the disk and `scheduling.strategy`. A replica that is stopped
    (SIGSTOP) is found frozen by its silence alone. `--dry-run` asks the hosts too, since ports, cores and versions are theirs.
    """

    name = "ssh"
    Options = SshOptions
    ignores_because = "it runs on the hosts as they are"

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[Plan]:
        """Asks the hosts, and plans a client of ssh for each replica."""
        options, cluster, program = self.options, job.cluster, job.program
        if not options.hosts:
            raise UserError("--backend ssh needs hosts; add --hosts FILE with a host on each line")
        log_dir = self.log_dir(job)
        host_of = place(cluster, read_hosts(options.hosts))
        client = shlex.split(options.ssh_command or "ssh")
        start = ssh_client.on_host(options.remote_python or sys.executable)
        commands = {host.name: ssh_command(host, client, start) for host in host_of.values()}
        with contextlib.ExitStack() as stack:
            marker = None
            # Of a program of the user's own, only the logs are in the job directory.
            if program.trainer and not is_remote(program.job_dir):
                job_dir = Path(program.job_dir).absolute()
                directory = next(path for path in (job_dir, *job_dir.parents) if path.is_dir())
                marker = stack.enter_context(tempfile.NamedTemporaryFile(prefix=".training-", dir=directory)).name
            facts = ask(commands, {"ports": cluster.replicas, "marker": marker})
        if program.trainer:
            check(facts, program.job_dir)
        machines = []
        for name, host in facts.items():
            replicas = [replica for replica, its_host in host_of.items() if its_host.name == name]
            machines.append(Machine(name=f"host {name}", cores=host.cores, gpus=host.gpus, replicas=replicas))
        division = divide(cluster, machines)
        ports = {name: iter(host.ports) for name, host in facts.items()}
        addresses = {member: f"{host.address}:{next(ports[host.name])}" for member, host in host_of.items()}
        if program.trainer:
            code = {package.__name__: str(Path(package.__file__).parent) for package in (common, trainer)}
        else:
            code = {".": program.code} if program.code else {}
        run_id = secrets.token_hex(4)

        def remote(replica: Replica) -> Replica:
            host = host_of[replica.role, replica.index].name
            env = {name: value for name, value in replica.env.items() if name != "PYTHONPATH"}
            request = {
                "host": host,
                "ssh": commands[host],
                "code": code,
                "status": replica.status,
                "variables": [*env, ATTEMPT],
                "agent": {
                    "mark": f"{run_id}-{replica.role}-{replica.index}",
                    "command": replica.command,
                    "python": sys.executable,
                    "cwd": os.getcwd(),
                },
            }
            command = (sys.executable, "-m", ssh_client.__name__, json.dumps(request))
            return dataclasses.replace(replica, command=command, env=env)

        plan = self.job_plan(job, addresses, log_dir, division)
        yield dataclasses.replace(plan, replicas=tuple(map(remote, plan.replicas)))


def read_hosts(path: str) -> list[Host]:
    """Reads a host file.

    Raises:
      UserError: If the file cannot be read, names no host, or has a wrong line, which is named.
    """
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UserError(f"--hosts {path}: {error}") from None
    hosts: dict[str, Host] = {}
    for number, line in enumerate(lines, 1):
        if not (text := line.split("#")[0].strip()):
            continue
        match = _LINE.fullmatch(text)
        if not match:
            raise UserError(f"{path}:{number}: {text!r} is not [user@]name[:port] [slots=N] [address=ADDRESS]")
        name, login, slots, address = match.group("name", "login", "slots", "address")
        if name in hosts:
            raise UserError(f"{path}:{number}: {name} is named twice; write it once, with slots=N")
        hosts[name] = Host(name=name, login=login, address=address or name, slots=int(slots or 1))
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
    """Returns the command line that runs `command` on a host."""
    return [*client, *_CONNECTION, f"ssh://{host.login}", command]


def ask(commands: Mapping[str, Sequence[str]], request: Mapping[str, Any]) -> dict[str, Facts]:
    """Returns the answer of `probe` on every host, all at the same time; `commands` run `ssh_client.on_host` there.

    Raises:
      UserError: Naming all hosts that cannot be reached, each with the reason.
    """

    def ask_one(command: Sequence[str]) -> Facts | str:
        message = ssh_client.message(probe, request)
        try:
            done = subprocess.run(command, input=message, capture_output=True, timeout=_ANSWER_S)
        except OSError as error:
            return str(error)
        except subprocess.TimeoutExpired:
            return f"no answer within {_ANSWER_S:.0f} s"
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            if line.startswith(probe.ANSWER):  # Others are of a login script.
                return Facts(**json.loads(line.removeprefix(probe.ANSWER)))
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"

    with ThreadPoolExecutor(max_workers=min(64, len(commands))) as pool:
        answers = dict(zip(commands, pool.map(ask_one, commands.values()), strict=True))
    if reasons := [f"{name} ({reason})" for name, reason in answers.items() if isinstance(reason, str)]:
        raise UserError(
            f"cannot run on {len(reasons)} of {len(answers)} hosts: {'; '.join(reasons)}; mend them, or leave them out"
        )
    return answers


def check(facts: Mapping[str, Facts], job_dir: str) -> None:
    """Refuses hosts with another TensorFlow than here, or that do not share the job directory: our trainer fails there."""
    version = probe.tensorflow_version()
    for name, host in facts.items():
        if host.tensorflow != version:
            raise UserError(
                f"host {name}: {host.executable} has TensorFlow {host.tensorflow}, this machine {version}; install the "
                "same there, or name another Python with --remote-python"
            )
        if not host.sees_marker:
            raise UserError(
                f"--job-dir {job_dir} is not the same place on host {name} as here; name a directory that all hosts "
                "share (NFS), or one in a bucket (gs://)"
            )
