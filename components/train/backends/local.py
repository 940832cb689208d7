"""Base of the back ends that run each replica, or a client of it, as a process of this machine."""

import contextlib
import dataclasses
import functools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence

from common.cli import Flags, flag
from common.errors import UserError, reading
from common.flags import positive
from common.storage.storage import is_remote
from components.train.backends.backend import Backend, Job, Status
from components.train.backends.host_agent import VISIBLE
from components.train.backends.resources import THREADS, Machine, divide
from components.train.supervision import launcher_log, lock, supervisor
from components.train.supervision.health import Patience, Vitals
from components.train.supervision.launcher_log import Event
from components.train.supervision.output import Output
from components.train.supervision.plan import STATUS, Plan, Replica
from components.train.supervision.restart_policy import KILLED
from trainer.cluster.member import POOL_ROLES, SERVER_THREADS

_POLL_S = 0.1
_here = functools.partial(flag, group="on this machine (--backend process, docker, ssh)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOptions(Flags):
    """Flags of all local back ends."""

    code: str | None = _here(
        str,
        "directory of --command to put on Python's path (on Vertex AI it is in the image)",
        metavar="DIR",
    )
    log_dir: str | None = _here(
        str, "one log per replica (<job-dir>/replicas without)", metavar="DIR"
    )
    grace_period_s: float | None = _here(
        positive,
        "that replicas have to save after a stop request, before they are killed "
        f"({Patience.grace_period_s:g} without)",
        metavar="SECONDS",
    )


class LocalBackend(Backend):
    """Base of the back ends that supervise one process of this machine for each replica.

    A subclass implements `plan`, which decides what these processes run.
    """

    Options = LocalOptions
    ignores_because = "it runs on this machine as it is"

    def submit(self, plan: Plan, output: Output) -> int:
        """Starts the replicas, and supervises and restarts them until the job ends.

        It must be called from the main thread.

        Returns:
          0 after the chief's success; 128+n if signal n stopped this process, or 124 after the time
          limit, but 137 if a replica had to be killed then; else the exit code of the replica that
          failed.

        Raises:
          UserError: If another launcher works on the job directory, a directory cannot be written,
            a bucket refuses a request, a command of `plan.setup` fails, or a replica cannot be
            started.
          ConnectionError: If the job directory is in a bucket that does not answer.
        """
        patience = Patience(grace_period_s=self.options.grace_period_s or Patience.grace_period_s)
        return supervisor.run(plan, output, patience)

    def status(self, job_dir: str) -> Status:
        """Returns the state of the newest job by the launcher's records and the status files.

        Args:
          job_dir: Job directory; the log directory if the job directory is in a bucket.

        Returns:
          The state; `stopped` stands for an end by a signal or by the time limit. The exit code is
          137 for `killed`, that of the job for `failed`, else 0.

        Raises:
          UserError: If no job ran there, or its records are damaged.
        """
        # The lock is read before the events, since a launcher writes its last event before it
        # releases the lock.
        holder = lock.holder(job_dir)
        with _events(job_dir) as events:
            start, end = events[0], events[-1]
            exit_code = 0
            details = f", {holder.name}" if holder else ""
            details += time.strftime(", started %Y-%m-%d %H:%M:%S", time.localtime(start["time"]))
            if holder:
                # A new launcher that has written no event yet is younger than the newest start.
                state = "starting" if holder.started > start["time"] else "running"
            elif end["event"] != "end":
                state, exit_code = "killed", KILLED
            else:
                details += (
                    f", took {end['time'] - start['time']:.1f} s, exit code {end['exit_code']}"
                )
                state = "stopped" if end["exit_code"] else "done"
                if "replica" in end or end["exit_code"] in (2, KILLED):
                    state, exit_code = "failed", end["exit_code"]
            lines = [state + details]
            for replica in start["replicas"]:
                vitals = Vitals(replica["status"])
                vitals.read(0.0)
                phase = vitals.phase or "started" if holder else "ended"
                lines.append(f"{replica['replica']:<12} {vitals.summary(phase)}")
            lines.append(next(event["message"] for event in reversed(events) if event["message"]))
            return Status(state=state, exit_code=exit_code, lines=lines)

    def cancel(self, job_dir: str) -> int:
        """Sends SIGTERM to the launcher, waits until nothing of the job is left, prints its status.

        Args:
          job_dir: Job directory; the log directory if the job directory is in a bucket.

        Returns:
          The exit code of `status`: 0 if the job is done or has saved, else the job's exit code.

        Raises:
          UserError: If no launcher runs there, it runs on another machine or in another container,
            or it belongs to another user.
        """
        holder = lock.holder(job_dir)
        if not holder:
            state = self.status(job_dir).state
            raise UserError(f"{job_dir}: nothing is running here; the last that did is {state}")
        if not holder.is_here:
            raise UserError(
                f"{job_dir}: {holder.name} runs this job, and what that is cannot be known from "
                "here; run the same command there"
            )
        print(f"stopping {holder.name}; its replicas save first", flush=True)
        holder.terminate()
        # This ends: the launcher kills its replicas after the grace period, and its guard, which
        # holds the lock too, gives up after some time.
        while lock.holder(job_dir) == holder:
            time.sleep(_POLL_S)
        status = self.status(job_dir)
        print("\n".join(status.lines))
        return status.exit_code

    def logs(self, job_dir: str) -> Iterator[tuple[str, str]]:
        """Yields the lines of the replicas' log files, one file after another.

        Args:
          job_dir: Job directory; the log directory if the job directory is in a bucket.

        Yields:
          Name of the replica, such as `worker/1`, and text of the line. The files also have the
          lines of earlier jobs with the same log directory.

        Raises:
          UserError: If no job ran there, or a log file cannot be read.
        """
        with _events(job_dir) as events:
            for replica in events[0]["replicas"]:
                with open(replica["log"], encoding="utf-8", errors="replace") as file:
                    for line in file:
                        yield replica["replica"], line.rstrip("\n")

    def log_dir(self, job: Job) -> str:
        """Returns the directory of the log and status files, which is on this machine.

        It is `--log-dir` or, without it, `replicas` in the job directory.

        Raises:
          UserError: If the job directory is in a bucket and no `--log-dir` is given.
        """
        job_dir = job.program.job_dir
        if is_remote(job_dir) and not self.options.log_dir:
            raise UserError(
                f"replicas write their logs to this machine, and --job-dir is {job_dir}; add "
                "--log-dir DIR"
            )
        return self.options.log_dir or os.path.join(job_dir, "replicas")

    def job_plan(
        self,
        job: Job,
        addresses: Sequence[str],
        machines: Sequence[Machine] = (),
        python: str = sys.executable,
    ) -> Plan:
        """Returns the plan of a job whose replicas are plain processes.

        Several replicas find their roles in `TF_CONFIG`, whose cluster leaves out the evaluator; a
        single replica gets none.

        Args:
          job: Job to run.
          addresses: `host:port` of each replica, in the order of `Cluster.members`.
          machines: Machines on which the replicas run; if empty, all run on this machine.
          python: Path of the Python interpreter that replaces `python` in the program's command.

        Raises:
          UserError: If the job directory is in a bucket and there is no `--log-dir`, or if a
            machine has fewer GPUs than the cluster file asks for, unless no machine has any.
        """
        cluster, program, log_dir = job.cluster, job.program, self.log_dir(job)
        shares = divide(cluster, machines)
        training: dict[str, list[str]] = {}
        for (role, _), address in zip(cluster.members, addresses, strict=True):
            # TensorFlow would wait for ever for an evaluator in the training cluster.
            if role != "evaluator":
                training.setdefault(role, []).append(address)
        replicas, notes = [], list(self.ignored(cluster))
        entry, *words = [*program.command, *program.args]
        command = (python if entry == "python" else entry, *words)
        for role, index in cluster.members:
            share, stem = shares[role, index], f"{log_dir}/{role}-{index}"
            status = os.path.abspath(f"{stem}.status.json")
            env = {
                **program.env,
                **share,
                **({} if program.trainer else _thread_variables(int(share[THREADS]))),
                STATUS: status,
                # Only the evaluator's own TF_CONFIG shows that there is one, but the chief must
                # know whether to wait for it.
                POOL_ROLES: ",".join(cluster.pools),
                # Otherwise Python would buffer lines, and lose them when it is killed.
                "PYTHONUNBUFFERED": "1",
            }
            if cluster.replicas > 1:
                env["TF_CONFIG"] = json.dumps(
                    {"cluster": training, "task": {"type": role, "index": index}}
                )
            replicas.append(
                Replica(
                    role=role,
                    index=index,
                    command=command,
                    env=env,
                    log=f"{stem}.log",
                    status=status,
                )
            )
        if any(pool.gpus for pool in cluster.pools.values()) and not any(
            VISIBLE in share for share in shares.values()
        ):
            notes.append("no GPUs here, but the cluster file asks for some: cores compute instead")
        return Plan(
            strategy=cluster.strategy,
            job_dir=program.job_dir,
            log_dir=log_dir,
            replicas=tuple(replicas),
            max_restarts=cluster.scheduling.max_restarts,
            timeout_s=cluster.scheduling.timeout_s,
            reports=bool(program.trainer),
            notes=tuple(notes),
        )


def _thread_variables(threads: int) -> dict[str, str]:
    """Returns variables that set the number of threads of TensorFlow in a user's own program."""
    return {
        "TF_NUM_INTRAOP_THREADS": str(threads),
        "TF_NUM_INTEROP_THREADS": str(max(SERVER_THREADS, threads)),
        "OMP_NUM_THREADS": str(threads),
    }


@contextlib.contextmanager
def _events(job_dir: str) -> Iterator[list[Event]]:
    """Yields the launcher's events of the newest job of a directory, oldest first, at least one.

    Raises:
      UserError: If no job ran there. Any other error in the block but a ConnectionError, such as a
        KeyError for a damaged event, becomes a UserError too.
    """
    with reading(os.path.join(job_dir, launcher_log.FILE)):
        events = launcher_log.last_run(job_dir)
        if not events:
            raise UserError(
                f"{job_dir}: no job ran here with components.train; name the --job-dir of one"
            )
        yield events
