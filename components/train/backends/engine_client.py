"""The launcher's part beside a container: run as a program of its own.

    python -m components.train.backends.engine_client prepare NETWORK JOB LOCKED   # an empty network
    python engine_client.py run NAME LINE...    # `docker run` as LINE; ends with the container's exit code
    python engine_client.py remove NETWORK      # the network and every container that belongs to it

Each launcher has a network of its own, and its containers carry that as the label `training.network`. The network's own
labels say which job and which launcher it is of: so what a launcher left that is gone is found and removed, and nothing of
one that lives, be it that both work on one job in a bucket, whose directory has no lock. But for `prepare`, standard
library only: there is one such process for every replica.
"""

import json
import os
import signal
import subprocess
import sys

LABEL, JOB = "training.network", "training.job-dir"
_LAUNCHER = "training.launcher"
_ENGINE_FAILED = (125, 126, 127)  # Of `docker run`, if the container never ran.
_WRONG = 2
_TERMINATED = 128 + signal.SIGTERM


def prepare(network: str, job: str, locked: str) -> int:
    """Makes the network of the job that keeps its state in `job`; what launchers that are gone left of it goes.

    `locked` says `locked` if no other launcher can work on the job, as its directory has a lock that this one holds.
    """
    from components.train.backends.launcher_identity import Fate, Launcher

    labels = {JOB: job, _LAUNCHER: Launcher.of(os.getppid()).to_json()}
    made = docker("network", "create", *(f"--label={key}={value}" for key, value in labels.items()), network)
    if made.returncode:
        said = made.stderr.strip().splitlines() or ["no answer"]
        return _wrong(f"docker network create: {said[-1]}")
    # Looked for afterwards: of two that begin at the same time, one at least sees the other.
    for other in docker("network", "ls", f"--filter=label={JOB}={job}", "--format={{.Name}}").stdout.split():
        shown = docker("network", "inspect", f'--format={{{{index .Labels "{_LAUNCHER}"}}}}', other)
        launcher = Launcher.from_json(shown.stdout)
        if other == network or shown.returncode:
            continue
        fate = launcher.fate if launcher else Fate.UNKNOWN
        runs = docker("ps", "--quiet", f"--filter=label={LABEL}={other}").stdout.split()
        if locked != "locked" and (fate is Fate.LIVES or (fate is Fate.UNKNOWN and runs)):
            who = launcher.name if launcher else "one that is not known"
            gone = f"; if it is gone, docker rm --force {' '.join(runs)}" if fate is Fate.UNKNOWN else ""
            return _wrong(f"a launcher already works on {job}: {who}; wait for it, or end it{gone}")
        remove(other)
    return 0


def remove(network: str) -> int:
    """Removes the network and its containers; returns 0 if nothing is left."""
    left = docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={network}").stdout.split()
    if left:
        docker("rm", "--force", "--volumes", *left)
    docker("network", "rm", network)
    there = docker("network", "ls", "--quiet", "--filter", f"label={LABEL}={network}")
    return there.returncode or int(bool(there.stdout.strip()))


def run(name: str, *line: str) -> int:
    """Runs a container in the foreground; returns its exit code, 128+n after signal n."""
    told: list[int] = []
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        # The client of the engine gets the signal too, being of our process group, and passes it on.
        signal.signal(number, lambda number, _: told.append(number))
    docker("rm", "--force", "--volumes", name)
    code = subprocess.run(line, stdin=subprocess.DEVNULL).returncode
    shown = docker("inspect", "--type", "container", "--format", "{{json .State}}", name)
    state = {} if shown.returncode else json.loads(shown.stdout)
    if state.get("OOMKilled"):
        print(f"{name} was killed: out of memory. Give --memory-gb more, or the job a smaller batch", flush=True)
    if state.get("Status") in ("exited", "dead"):
        return int(state["ExitCode"])
    if told:
        return _TERMINATED
    if code < 0:
        print(f"the engine's client of {name} was killed by signal {-code}", flush=True)
        return 128 - code
    return _WRONG if code in _ENGINE_FAILED else code or 1


def caller(*, rootless: bool) -> str:
    """The user of a container whose files shall be those of this user, who is root in containers of a rootless engine."""
    return "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"


def docker(*arguments: str, limit_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Has the engine's client do something."""
    return subprocess.run(
        ["docker", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s
    )


def _wrong(why: str) -> int:
    print(f"error: {why}", file=sys.stderr)
    return _WRONG


if __name__ == "__main__":
    sys.exit({"prepare": prepare, "run": run, "remove": remove}[sys.argv[1]](*sys.argv[2:]))
