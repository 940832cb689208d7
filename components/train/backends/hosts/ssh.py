"""The ssh back end: replicas on the hosts of a host file.

Every host is asked first: whether it answers, its TensorFlow, cores, GPUs and free ports, and whether the job's directory
and dataset are the same there. Our code, or the user's, is copied to each host and removed at the end. Without storage that
the hosts share, `--sync-dst-dir` names a directory on their disks: the dataset is copied into it before, checkpoints come
back from the chief's host whenever the job stops, and go out to all.

A replica that is stopped (SIGSTOP) is found frozen by its silence alone.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import os
import secrets
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import trainer
from components.train.backends import probe
from components.train.backends.environment import job_plan, log_place
from components.train.backends.hosts import remote_python
from components.train.backends.hosts.host_file import Host, place, read_hosts, ssh_line
from components.train.backends.hosts.preflight import Facts, ask, check_versions
from components.train.backends.hosts.replica_agent import PYTHON
from components.train.backends.plan import ATTEMPT, Plan, Replica
from components.train.backends.program import Program
from components.train.backends.resources import Division, Part, divide_all
from components.train.cluster.cluster_file import Cluster
from trainer.base.errors import UserError
from trainer.base.files import is_remote
from trainer.job_dir import done, identity

# By which the replicas of our trainer agree: what the job is, that somebody was told to stop, that all is done.
_AGREED = (identity.FILE, "STOP", done.FILE)
_CLIENT = (sys.executable, "-m", "components.train.backends.hosts.replica_client")
_SHIP = (sys.executable, "-m", "components.train.backends.hosts.transfer")


def plan_hosts(args: argparse.Namespace, cluster: Cluster, program: Program) -> Plan:
    """Asks the hosts, and plans replicas on them, with the flags of the command line."""
    if not args.hosts:
        raise UserError("--backend ssh needs hosts; add --hosts FILE with a host on each line")
    sync_dir = args.sync_dst_dir
    if sync_dir and not sync_dir.startswith("/"):
        raise UserError(f"--sync-dst-dir {sync_dir}: not an absolute path; begin it with '/'")
    log_dir = log_place(program, args.log_dir)
    where = place(cluster, read_hosts(args.hosts), evaluator_beside_chief=bool(sync_dir))
    client = shlex.split(args.ssh_command or "ssh")
    lines = {host.name: ssh_line(host, client) for host in [where["chief", 0], *where.values()]}
    pythons = {name: (*line, remote_python.on_host(args.remote_python)) for name, line in lines.items()}
    here = {"--data-dir": _local(program.data_dir), "--job-dir": _local(program.job_dir) if program.reports else None}
    shared = {} if sync_dir else here
    facts = _ask(pythons, Counter(host.name for host in where.values()), shared)
    notes = check_versions(facts, needs_tensorflow=program.reports)

    run_id = secrets.token_hex(4)
    root = sync_dir or f"/tmp/training-{run_id}"
    code_dir = f"{root}/code-{run_id}"
    send = []
    if program.code:
        send.append({"what": "code", "from": program.code, "to": code_dir, "names": ["."]})
    elif program.reports:
        ours = str(Path(trainer.__file__).parents[1])
        send.append({"what": "code", "from": ours, "to": code_dir, "names": ["trainer"]})
    there = dict(here)
    for flag, path in here.items():
        if sync_dir and path:  # the same place at every start
            there[flag] = f"{root}/{os.path.basename(path)}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"
    job = None
    if sync_dir and here["--data-dir"]:
        send.append({"what": "dataset", "from": here["--data-dir"], "to": there["--data-dir"], "names": ["."]})
    if sync_dir and here["--job-dir"]:
        job = {"here": here["--job-dir"], "there": there["--job-dir"]}
    shipping = {
        "hosts": lines,
        "rsync": bool(shutil.which("rsync")) and all(each.rsync for each in facts.values()),
        "send": send,
        "job": job,
        "clean": [code_dir if sync_dir else root],
    }

    divisions = _divide(cluster, where, facts, notes)
    command = [PYTHON if word == sys.executable else word for word in program.command]
    for flag, path in there.items():
        command += [flag, path] if path else []  # After those of the user: the last one counts.
    ports = {name: iter(each.ports) for name, each in facts.items()}

    def address(role: str, index: int) -> str:
        host = where[role, index]
        return f"{host.address}:{next(ports[host.name])}"

    def run(replica: Replica) -> Replica:
        host = where[replica.role, replica.index].name
        env = {**replica.env, **divisions[host].env(replica.role, replica.index)}
        env.pop("PYTHONPATH", None)
        request = {
            "host": host,
            "ssh": pythons[host],
            "mark": f"{run_id}-{replica.role}-{replica.index}",
            "status": replica.status,
            "variables": [*env, ATTEMPT],
            "command": command,
            "path": code_dir,
            "cwd": [*([] if sync_dir else [os.getcwd()]), code_dir, "."],
            "mirror": {name: [f"{job['here']}/{name}", f"{job['there']}/{name}"] for name in _AGREED} if job else {},
            "back": shipping if job and replica.role == "chief" else None,
        }
        words = remote_python.arguments(request)
        return dataclasses.replace(
            replica, command=(*_CLIENT, "run", *words), env=env, cleanup=(*_CLIENT, "clean", *words)
        )

    request = remote_python.arguments(shipping)
    return job_plan(
        cluster,
        program,
        "ssh",
        log_dir=log_dir,
        address=address,
        run=run,
        notes=notes,
        setup=((*_SHIP, "out", *request),) if send else (),
        level=(*_SHIP, "level", *request) if job else (),
        teardown=(*_SHIP, "clean", *request) if send else (),
    )


def _local(path: str | None) -> str | None:
    """Absolute, or None if it is on no disk."""
    return None if not path or is_remote(path) else os.path.abspath(path)


def _ask(
    pythons: Mapping[str, tuple[str, ...]], counts: Mapping[str, int], shared: Mapping[str, str | None]
) -> dict[str, Facts]:
    """What the hosts say; they have the `shared` job directory of this machine, and a dataset like that here."""
    data_dir, job_dir = shared.get("--data-dir"), shared.get("--job-dir")
    manifest = f"{data_dir}/manifest.json" if data_dir else None
    with contextlib.ExitStack() as stack:
        token = None
        if job_dir:  # A file in it, or in the directory that it will be made in, by which hosts recognise the place.
            there = next(place for place in (Path(job_dir), *Path(job_dir).parents) if place.is_dir())
            token = stack.enter_context(tempfile.NamedTemporaryFile(prefix=".training-", dir=there)).name
        requests = {name: {"ports": counts[name], "token": token, "manifest": manifest} for name in pythons}
        facts = ask(pythons, requests)
    if apart := [name for name, each in facts.items() if not each.there]:
        raise UserError(
            f"--job-dir {job_dir} is not the same place on host {', '.join(apart)} as here; name a directory that they "
            "share, or add --sync-dst-dir DIR to have it copied"
        )
    digest = manifest and probe.digest(manifest)
    other = [name for name, each in facts.items() if each.manifest != digest]
    if digest and other:  # The hosts may have a dataset that this machine has not: the trainer will tell.
        raise UserError(
            f"--data-dir {data_dir} on host {', '.join(other)} is not the dataset that is here; copy it there, or "
            "add --sync-dst-dir DIR to have it copied"
        )
    return facts


def _divide(
    cluster: Cluster, where: Mapping[tuple[str, int], Host], facts: Mapping[str, Facts], notes: list[str]
) -> dict[str, Division]:
    """Divides each host among its replicas, and notes how."""
    parts = []
    for name, each in facts.items():
        replicas = [who for who, host in where.items() if host.name == name]
        parts.append(Part(name=f"host {name}", cores=each.cores, gpus=each.gpus, replicas=replicas))
    divisions = divide_all(cluster, parts)
    for part, division in zip(parts, divisions, strict=True):
        who = ", ".join(f"{role}/{index}" for role, index in part.replicas)
        notes.append("; ".join([f"{part.name}: {who}", *division.notes]))
    return dict(zip(facts, divisions, strict=True))
