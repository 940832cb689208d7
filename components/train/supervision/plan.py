"""The plan of a job as processes of this machine, one for each replica.

The local back ends make it, and `supervisor.run` runs it. The command of a replica runs it in the
foreground: it is the program itself, or a client such as `docker run ...` or `ssh host ...`.
"""

import dataclasses
import json
from collections.abc import Mapping

from common.storage.storage import is_remote

# Environment variables, as in `trainer.job.journal`. They are not imported from there, since that
# would double the time that the launcher's imports take.
STATUS, ATTEMPT = "TRAINER_STATUS", "TRAINER_ATTEMPT"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replica:
    """A replica of the job, as the process that runs it.

    Attributes:
      role: `chief`, `worker`, `ps` or `evaluator`.
      index: Index within the role, from 0.
      command: Program and arguments. The process ends when the replica ends, with its exit code,
        or 128+n if signal n killed it.
      env: Environment variables that are added to those of the launcher. `TRAINER_ATTEMPT`, the
        number of the start, is added too.
      log: File to which its standard output and error are appended.
      status: Status file on this machine that the replica writes (`trainer.job.journal`).
    """

    role: str
    index: int
    command: tuple[str, ...]
    env: Mapping[str, str]
    log: str
    status: str

    @property
    def name(self) -> str:
        """Name for people, such as `worker/1`."""
        return f"{self.role}/{self.index}"

    @property
    def group(self) -> str:
        """Group whose failures are counted together: `evaluator`, or `job` for all other roles."""
        return "evaluator" if self.role == "evaluator" else "job"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A job as processes of this machine.

    Attributes:
      strategy: Strategy of the cluster, which decides who is restarted when a replica dies.
      job_dir: Directory in which the job keeps its state. One launcher at a time may use it.
      log_dir: Local directory of the log and status files.
      replicas: Replicas in the order in which they start.
      setup: Commands that run one after another before the replicas, while the job's lock is held.
        If one fails, the job ends, and the last line of its standard error is the error message.
      teardown: Command that undoes `setup`. The guard runs it when no replica is left, however the
        job ended; empty for none.
      max_restarts: Bound on restarts after errors and, counted apart, after preemptions.
      timeout_s: Seconds from the start of the replicas until all are asked to stop; None for no
        limit.
      reports: Whether the program is known to write status files, so that it counts as frozen if it
        writes no first one in time.
      notes: Lines about the plan for people.
    """

    strategy: str
    job_dir: str
    log_dir: str
    replicas: tuple[Replica, ...]
    setup: tuple[tuple[str, ...], ...] = ()
    teardown: tuple[str, ...] = ()
    max_restarts: int = 5
    timeout_s: int | None = None
    reports: bool = True
    notes: tuple[str, ...] = ()

    @property
    def records_dir(self) -> str:
        """Directory of the launcher's lock and event log.

        It is the job directory, or the log directory if the job directory is in a bucket.
        """
        return self.log_dir if is_remote(self.job_dir) else self.job_dir

    def to_text(self) -> str:
        """Returns the plan as indented JSON, for `--dry-run`."""
        return json.dumps(dataclasses.asdict(self), indent=2)
