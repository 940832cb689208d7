"""The ssh back end: replicas on the hosts of a host file.

A line of the file is `[user@]name[:port] [slots=N]`; `#` begins a comment:

    node1 slots=2
    me@10.0.0.7:2222                 # the other hosts reach it as 10.0.0.7

All hosts must share the log directory (over NFS, for example). Replicas write their status files
there, and while the job runs they find a copy of their code there: the project's packages, or the
directory `--code` of the user's own program.
"""

import contextlib
import dataclasses
import functools
import json
import os
import random
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import common
import trainer
from common.cli import flag, split_words
from common.errors import UserError, readable
from common.ports import PORTS
from components.train.backends import ssh_client
from components.train.backends.backend import Job
from components.train.backends.host_agent import ANSWER
from components.train.backends.local import LocalBackend, LocalOptions
from components.train.backends.resources import Machine
from components.train.cluster.cluster_file import Cluster
from components.train.supervision.plan import ATTEMPT, Plan, Replica

_LINE = re.compile(
    r"(?P<login>(?:[^@\s-][^@\s]*@)?(?P<name>[\w.][\w.-]*|\[[\da-fA-F:.]+\])(?::\d+)?)"
    r"(?:\s+slots=(?P<slots>[1-9]\d*))?",
    re.ASCII,
)
# With these options ssh never prompts, and gives up a lost connection after 15 s.
_CONNECTION = (
    "-T -x -oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=5 -oServerAliveCountMax=3"
)
# Longer than ssh waits for a connection (10 s), since Python may be slow to start on the host.
_ANSWER_S = 20.0
_CLIENT = (sys.executable, "-m", ssh_client.__name__)
_ssh = functools.partial(flag, group="other hosts (--backend ssh)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SshOptions(LocalOptions):
    """Flags of the ssh back end."""

    hosts: str | None = _ssh(str, "hosts, one a line: [user@]name[:port] [slots=N]", metavar="FILE")
    ssh_command: str | None = _ssh(
        str, "client and options, 'ssh -i KEY' for example (ssh without)", metavar="LINE"
    )
    remote_python: str | None = _ssh(
        str, "on the hosts (without, the path of the one that runs this)", metavar="PATH"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Host:
    """A host of a host file.

    Attributes:
      name: Name or address, at which the other hosts reach it too.
      login: The name with the user and port of the file, if it has them: `[user@]name[:port]`.
      slots: Number of replicas that may run on it.
    """

    name: str
    login: str
    slots: int = 1


class SshBackend(LocalBackend):
    """Runs each replica on a host of a host file.

    A program beside the replica kills it when the connection is lost. `--dry-run` connects to the
    hosts too, since the plan depends on their cores and GPUs.

    Ignored here: machine and accelerator types, alternatives, the disk and `scheduling.strategy`. A
    stopped replica (SIGSTOP) is found to be frozen only by the silence of its status file.
    """

    name = "ssh"
    Options = SshOptions
    ignores_because = "it runs on the hosts as they are"

    @contextlib.contextmanager
    def plan(self, job: Job) -> Iterator[Plan]:
        """Asks all hosts for their cores and GPUs, and plans one ssh client for each replica.

        Ports are chosen at random, and may turn out to be taken. The plan's `setup` copies the code
        of the replicas into the log directory.

        Raises:
          UserError: If `--hosts` is missing, the host file is wrong or has too few slots, a
            quotation in `--ssh-command` is open, a host cannot be used, the job directory is in a
            bucket and there is no `--log-dir`, or a host has fewer GPUs than the cluster file asks
            for, unless none has any.
          OSError: If this machine cannot write to the log directory.
        """
        options, program = self.options, job.program
        if not options.hosts:
            raise UserError("--backend ssh needs hosts; add --hosts FILE with a host on each line")
        log_dir = os.path.abspath(self.log_dir(job))
        host_of = place(job.cluster, read_hosts(options.hosts))
        client = split_words("--ssh-command", f"{options.ssh_command or 'ssh'} {_CONNECTION}")
        python = options.remote_python or sys.executable
        on_host = ssh_client.on_host(python)
        commands = {
            host.name: [*client, f"ssh://{host.login}", on_host] for host in host_of.values()
        }
        machines = [
            Machine(
                name=f"host {name}",
                **answer,
                replicas=[member for member, host in host_of.items() if host.name == name],
            )
            for name, answer in ask(commands, log_dir).items()
        ]
        ports = random.sample(PORTS, len(host_of))
        addresses = [
            f"{host.name}:{port}" for host, port in zip(host_of.values(), ports, strict=True)
        ]
        plan = self.job_plan(job, addresses, machines, python)

        place_of_code = os.path.join(log_dir, f".code-{secrets.token_hex(4)}")
        code = f"{place_of_code}/code"
        copies = {code: program.code} if program.code else {}
        if program.trainer:
            copies = {
                f"{code}/{package.__name__}": package.__path__[0] for package in (common, trainer)
            }

        # Returns the replica with the command and environment of its ssh client.
        def remote(replica: Replica) -> Replica:
            host = host_of[replica.role, replica.index].name
            env = {**replica.env, "PYTHONPATH": code}
            request = {
                "host": host,
                "ssh": commands[host],
                "variables": [*env, ATTEMPT],
                "command": replica.command,
                "cwd": os.getcwd(),
            }
            return dataclasses.replace(
                replica, command=(*_CLIENT, "run", json.dumps(request)), env=env
            )

        yield dataclasses.replace(
            plan,
            replicas=tuple(map(remote, plan.replicas)),
            setup=((*_CLIENT, "copy", json.dumps(copies)),) if copies else (),
            teardown=("rm", "-rf", place_of_code),
        )


def read_hosts(path: str) -> list[Host]:
    """Returns the hosts of a host file, in its order; an empty list if it has none.

    Raises:
      UserError: If the file cannot be read, has a wrong line, or names a host twice. For a line,
        the message has its number.
    """
    with readable(path):
        lines = Path(path).read_text("utf-8", "replace").splitlines()
    hosts: dict[str, Host] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.fullmatch(text)
        if not match:
            raise UserError(f"{path}:{number}: {text!r} is not [user@]name[:port] [slots=N]")
        name = match["name"]
        if name in hosts:
            raise UserError(f"{path}:{number}: {name} is named twice; write it once, with slots=N")
        hosts[name] = Host(name=name, login=match["login"], slots=int(match["slots"] or 1))
    return list(hosts.values())


def place(cluster: Cluster, hosts: Sequence[Host]) -> dict[tuple[str, int], Host]:
    """Assigns replicas to hosts in turn, one to each host with a free slot, then again.

    Returns:
      The host by role and index of a replica. The chief is on the first host.

    Raises:
      UserError: If the hosts have fewer slots than the cluster has replicas.
    """
    members = cluster.members
    slots = [host for turn in range(len(members)) for host in hosts if host.slots > turn]
    if len(slots) < len(members):
        raise UserError(
            f"the cluster has {len(members)} replicas and the host file {len(slots)} slots; add "
            "hosts, or slots=N to their lines"
        )
    return dict(zip(members, slots, strict=False))


def ask(commands: Mapping[str, Sequence[str]], log_dir: str) -> dict[str, dict[str, Any]]:
    """Asks all hosts at once for their cores and GPUs, and checks that they share a directory.

    Args:
      commands: Command line by name of the host, which runs `ssh_client.on_host` there.
      log_dir: Absolute path of the directory. If it does not exist yet, its nearest existing parent
        is checked.

    Returns:
      Mapping by name of the host: `cores`, the number of processor cores, and `gpus`, the list of
      ids of the GPUs.

    Raises:
      UserError: If a host cannot be reached, lacks Python, does not share the directory, or does
        not answer within 20 s. The message lists all such hosts with their reasons.
      OSError: If this machine cannot write to the directory.
    """
    # A host that sees a new temporary file shares the directory with this machine.
    directory = next(path for path in (Path(log_dir), *Path(log_dir).parents) if path.is_dir())
    with tempfile.NamedTemporaryFile(prefix=".training-", dir=directory) as marker:
        ask_one = functools.partial(_ask, ssh_client.message({"path": marker.name}))
        with ThreadPoolExecutor(max_workers=64) as pool:
            answers = dict(zip(commands, pool.map(ask_one, commands.values()), strict=True))
    reasons = [f"{name} ({answer})" for name, answer in answers.items() if isinstance(answer, str)]
    if reasons:
        raise UserError(
            f"cannot run on {len(reasons)} of {len(answers)} hosts: {'; '.join(reasons)}; mend "
            "them, leave them out, or name a --job-dir or --log-dir that they share"
        )
    return {name: answer for name, answer in answers.items() if not isinstance(answer, str)}


def _ask(message: str, command: Sequence[str]) -> dict[str, Any] | str:
    """Returns a host's answer, a mapping with `cores` and `gpus`, or the reason for none as text.

    Args:
      message: Text for the standard input of the command.
      command: Command line that asks the host.
    """
    try:
        done = subprocess.run(
            command,
            input=message,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_ANSWER_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if answer := re.search(f"^{ANSWER}(.*)", done.stdout, re.MULTILINE):
        return json.loads(answer[1])
    return (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
