"""The ssh back end: replicas on the hosts of a host file.

Synopsis:

    plan = plan_hosts(cluster, program, hosts=read_hosts("hosts.txt"), log_dir="jobs/a/replicas", code=code, ...)
    exit_code = supervisor.run(plan)

Every host is asked first: whether it answers, its TensorFlow, cores, GPUs and free ports, and whether the job's directory
and dataset are the same there. Our code, or the user's, is copied to each host and removed at the end. Without storage that
the hosts share, `sync_dir` names a directory on their disks: the dataset is copied into it before, checkpoints come back from
the chief's host whenever the job stops, and go out to all.

A replica that is stopped (SIGSTOP) is found frozen by its silence alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import trainer
from components.train.backends.environment import job_plan, members, replica_env
from components.train.backends.heeded import ignored_by
from components.train.backends.hosts import remote_python
from components.train.backends.hosts.host_file import Host, place, ssh_line
from components.train.backends.hosts.preflight import Facts, ask, check_versions
from components.train.backends.hosts.replica_agent import PYTHON
from components.train.backends.plan import Plan, Replica
from components.train.backends.program import Program
from components.train.backends.resources import Part, divide_all
from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError
from trainer.job_dir import done, identity
from trainer.job_dir.journal import ATTEMPT

__doc__ = f"{__doc__}\n{ignored_by('ssh')}"

# By which the replicas of our trainer agree: what the job is, that somebody was told to stop, that all is done.
_AGREED = (identity.FILE, "STOP", done.FILE)
_CLIENT = (sys.executable, "-m", "components.train.backends.hosts.replica_client")
_SHIP = (sys.executable, "-m", "components.train.backends.hosts.transfer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Paths:
    """Where a job's things are.

    Attributes:
      code: Directory to copy to the hosts, and the names in it; None if there is nothing to copy.
      data_dir: Dataset of our trainer, if that is what runs.
      job_dir: Of our trainer, which all its replicas must see; None for a program of the user's own.
    """

    code: tuple[str, tuple[str, ...]] | None
    data_dir: str | None = None
    job_dir: str | None = None


def our_code() -> tuple[str, tuple[str, ...]]:
    """What our trainer needs on a host."""
    return str(Path(trainer.__file__).parents[1]), ("trainer",)


def plan_hosts(
    cluster: Cluster,
    program: Program,
    *,
    hosts: Sequence[Host],
    paths: Paths,
    log_dir: str,
    ssh: Sequence[str] = ("ssh",),
    python: str | None = None,
    sync_dir: str | None = None,
    rsync: bool = False,
) -> Plan:
    """Asks the hosts, and plans replicas on them, all running the same command and told apart by `TF_CONFIG`.

    Args:
      cluster: What to run on.
      program: What to run.
      hosts: To place replicas on.
      paths: What the replicas need.
      log_dir: Directory of log and status files, on this machine.
      ssh: Command line of the ssh client.
      python: On the hosts; by default this interpreter's path where a host has it, else `python3`.
      sync_dir: Absolute path of a directory on the hosts, to which dataset and job directory are copied.
      rsync: Whether this machine has rsync.

    Raises:
      UserError: If a host cannot be reached or cannot run the job; all such hosts are named.
    """
    where = place(cluster, hosts, evaluator_beside_chief=bool(sync_dir))
    used = {host.name: host for host in [where["chief", 0], *where.values()]}
    lines = {name: ssh_line(host, ssh) for name, host in used.items()}
    data_dir = None if not paths.data_dir or "://" in paths.data_dir else os.path.abspath(paths.data_dir)
    job_dir = None if not paths.job_dir or "://" in paths.job_dir else os.path.abspath(paths.job_dir)
    counts = Counter(host.name for host in where.values())
    shared_job = job_dir if not sync_dir else None
    manifest = f"{data_dir}/manifest.json" if data_dir and not sync_dir else None
    with _token(shared_job) as token:
        alike = {"there": [token] if token else [], "alike": [manifest] if manifest else []}
        requests = {name: {**alike, "ports": counts[name]} for name in used}
        facts = ask(lines, python or sys.executable, requests, otherwise=python or "python3")
    notes = check_versions(facts, needs_tensorflow=program.reports)
    _check_shared(facts, paths, manifest)

    run = secrets.token_hex(4)
    root = sync_dir or f"/tmp/training-{run}"
    code_dir = f"{root}/code-{run}"
    flags: list[str] = []
    send = []
    if paths.code:
        send.append({"what": "code", "from": paths.code[0], "to": code_dir, "names": paths.code[1]})
    there = {"--data-dir": data_dir, "--job-dir": job_dir}
    if sync_dir:
        there = {flag: path and f"{root}/{_label(path)}" for flag, path in there.items()}
        if data_dir:
            send.append({"what": "dataset", "from": data_dir, "to": there["--data-dir"], "names": ["."]})
    for flag, path in there.items():
        flags += [flag, path] if path else []  # After those of the user: the last one counts.
    shipping = {
        "hosts": lines,
        "rsync": rsync and all(each.rsync for each in facts.values()),
        "send": send,
        "job": {"here": job_dir, "there": there["--job-dir"]} if sync_dir and job_dir else None,
        "clean": [code_dir if sync_dir else root],
    }

    ports = {name: iter(each.ports) for name, each in facts.items()}
    addresses = {
        role: [f"{where[role, i].address}:{next(ports[where[role, i].name])}" for i in indices]
        for role, indices in members(cluster).items()
    }
    parts = [
        Part(
            name=f"host {name}",
            cores=each.cores,
            gpus=each.gpus,
            replicas=[who for who in where if where[who].name == name],
        )
        for name, each in facts.items()
    ]
    divisions = dict(zip(facts, divide_all(cluster, parts), strict=True))
    for part, division in zip(parts, divisions.values(), strict=True):
        who = ", ".join(f"{role}/{index}" for role, index in part.replicas)
        notes.append("; ".join([f"{part.name}: {who}", *division.notes]))
    line = [PYTHON if word == sys.executable else word for word in program.command]
    replicas = []
    for (role, index), host in where.items():
        stem = f"{log_dir}/{role}-{index}"
        status = f"{os.path.abspath(stem)}.status.json"
        env = replica_env(cluster, program, role, index, addresses=addresses, status=status)
        env |= divisions[host.name].env(role, index)
        env.pop("PYTHONPATH", None)
        client = {
            "host": host.name,
            "ssh": (*lines[host.name], remote_python.on_host(python or sys.executable, python or "python3")),
            "mark": f"{run}-{role}-{index}",
            "status": status,
            "variables": [*env, ATTEMPT],
            "command": [*line, *flags],
            "path": [code_dir] if paths.code else [],
            "cwd": [*([] if sync_dir else [os.getcwd()]), code_dir, "."],
            "mirror": {
                side: {name: f"{directory}/{name}" for name in _AGREED} if shipping["job"] else {}
                for side, directory in (shipping["job"] or {"here": "", "there": ""}).items()
            },
            "back": shipping if shipping["job"] and role == "chief" else None,
        }
        replicas.append(
            Replica(
                role=role,
                index=index,
                command=(*_CLIENT, "run", *remote_python.arguments(client)),
                env=env,
                log=f"{stem}.log",
                status=status,
                cleanup=(*_CLIENT, "clean", *remote_python.arguments(client)),
            )
        )
    request = remote_python.arguments(shipping)
    return job_plan(
        cluster,
        program,
        "ssh",
        log_dir=log_dir,
        replicas=sorted(replicas, key=lambda replica: list(cluster.pools).index(replica.role)),
        setup=((*_SHIP, "out", *request),) if send or shipping["job"] else (),
        level=(*_SHIP, "level", *request) if shipping["job"] else (),
        teardown=(*_SHIP, "clean", *request) if paths.code else (),
        notes=notes,
    )


@contextlib.contextmanager
def _token(directory: str | None) -> Iterator[str | None]:
    """A file in the directory, or in the one that it will be made in, by which hosts recognise it."""
    if not directory:
        yield None
        return
    place = Path(directory)
    while not place.is_dir():
        place = place.parent
    token = place / f".training-{secrets.token_hex(8)}"
    try:
        token.touch()
        yield str(token)
    finally:
        token.unlink(missing_ok=True)


def _check_shared(facts: Mapping[str, Facts], paths: Paths, manifest: str | None) -> None:
    """Whether all hosts have the job directory of this machine, and a dataset like that here."""
    apart = [name for name, each in facts.items() if not all(each.there)]
    if apart:
        raise UserError(
            f"--job-dir {paths.job_dir} is not the same place on host {', '.join(apart)} as here; name a directory that they "
            "share, or add --sync-dst-dir DIR to have it copied"
        )
    if manifest:
        try:
            here = hashlib.sha256(Path(manifest).read_bytes()).hexdigest()
        except OSError:
            return  # The hosts may have a dataset that this machine has not: the trainer will tell.
        if other := [name for name, each in facts.items() if each.alike != [here]]:
            raise UserError(
                f"--data-dir {paths.data_dir} on host {', '.join(other)} is not the dataset that is here; copy it there, or "
                "add --sync-dst-dir DIR to have it copied"
            )


def _label(path: str) -> str:
    """A name for a copy of `path`, the same at every start."""
    return f"{os.path.basename(path)}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"
