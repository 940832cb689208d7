"""The ssh back end: replicas on the hosts of a host file.

Every host is asked first: whether it answers, its TensorFlow, cores, GPUs and free ports, and whether it sees the job
directory, which all hosts share (NFS, or a bucket). Our code, or the user's, is copied to a place of the replica's own
and removed at its end.

A replica that is stopped (SIGSTOP) is found frozen by its silence alone.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import secrets
import shlex
import sys
import tempfile
from pathlib import Path

import trainer
from common.errors import UserError
from common.storage.storage import is_remote
from components.train.backends.environment import job_plan, log_place
from components.train.backends.plan import ATTEMPT, Plan, Replica
from components.train.backends.program import Program
from components.train.backends.resources import Machine, divide
from components.train.backends.ssh_client import on_host
from components.train.backends.ssh_hosts import place, read_hosts, ssh_command
from components.train.backends.ssh_preflight import ask, check
from components.train.cluster.cluster_file import Cluster

_CLIENT = (sys.executable, "-m", "components.train.backends.ssh_client")


def plan_hosts(args: argparse.Namespace, cluster: Cluster, program: Program) -> Plan:
    """Asks the hosts, and plans replicas on them, with the flags of the command line."""
    if not args.hosts:
        raise UserError("--backend ssh needs hosts; add --hosts FILE with a host on each line")
    log_dir = log_place(program, args.log_dir)
    host_of = place(cluster, read_hosts(args.hosts))
    client = shlex.split(args.ssh_command or "ssh")
    python = on_host(args.remote_python or sys.executable)
    commands = {host.name: ssh_command(host, client, python) for host in host_of.values()}
    with contextlib.ExitStack() as stack:
        marker = None
        # That of a program of the user's own only has its logs.
        if program.reports and not is_remote(program.job_dir):
            job_dir = Path(program.job_dir).absolute()
            directory = next(path for path in (job_dir, *job_dir.parents) if path.is_dir())
            marker = stack.enter_context(tempfile.NamedTemporaryFile(prefix=".training-", dir=directory)).name
        facts = ask(commands, {"ports": cluster.replicas, "marker": marker})
    if program.reports:
        check(facts, program.job_dir)

    machines = []
    for name, host in facts.items():
        replicas = [replica for replica, its_host in host_of.items() if its_host.name == name]
        machines.append(Machine(name=f"host {name}", cores=host.cores, gpus=host.gpus, replicas=replicas))
    division = divide(cluster, machines)
    code = (str(Path(trainer.__file__).parent), "trainer") if program.reports else (program.code, ".")
    ports = {name: iter(host.ports) for name, host in facts.items()}
    run_id = secrets.token_hex(4)

    def address(role: str, index: int) -> str:
        host = host_of[role, index]
        return f"{host.address}:{next(ports[host.name])}"

    def run(replica: Replica) -> Replica:
        host = host_of[replica.role, replica.index].name
        env = {**replica.env, **division.shares[replica.role, replica.index].env}
        env.pop("PYTHONPATH", None)
        request = {
            "host": host,
            "ssh": commands[host],
            "code": code,
            "status": replica.status,
            "variables": [*env, ATTEMPT],
            "agent": {
                "mark": f"{run_id}-{replica.role}-{replica.index}",
                "command": program.command,
                "python": sys.executable,
                "cwd": os.getcwd(),
            },
        }
        return dataclasses.replace(replica, command=(*_CLIENT, json.dumps(request)), env=env)

    return job_plan(cluster, program, "ssh", log_dir=log_dir, address=address, run=run, notes=division.notes)
