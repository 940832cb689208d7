"""The plan of a job on local client processes: every one of them, before any starts.

`supervisor.run(plan)` runs it, whichever back end made it. A replica's command is whatever runs it
in the foreground: the program itself, `docker run ...`, `ssh host ...`.
"""

import dataclasses
import json
from collections.abc import Mapping

from common.storage.storage import is_remote

# The names are those of `trainer.job.journal`, whose import would take as long as the rest of the
# launcher's.
STATUS, ATTEMPT = "TRAINER_STATUS", "TRAINER_ATTEMPT"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replica:
    """One client process of the job."""

    role: str  # `chief`, `worker`, `ps` or `evaluator`.
    index: int  # Among the replicas of its role, from 0.
    command: tuple[
        str, ...
    ]  # Program and arguments. It ends when the replica ends, with its exit code (or 128+n).
    env: Mapping[
        str, str
    ]  # On top of the launcher's own environment and TRAINER_ATTEMPT, the number of this start.
    log: str  # File that takes its standard output and error.
    status: (
        str  # File on this machine in which the replica reports how it is (`trainer.job.journal`).
    )

    @property
    def name(self) -> str:
        """`worker/1`, as people read it."""
        return f"{self.role}/{self.index}"

    @property
    def group(self) -> str:
        """Whose failures are counted together: `evaluator`, or `job` for all others."""
        return "evaluator" if self.role == "evaluator" else "job"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A job as processes of this machine."""

    strategy: str  # Decides who is restarted when a replica dies.
    job_dir: str  # Where the job keeps its state; one launcher at a time may work on it.
    log_dir: str  # Local directory of log and status files.
    replicas: tuple[Replica, ...]  # In the order in which they start.
    # Commands to run one after another before that, with the job's lock held. If one fails, its
    # last line on standard error is the error and the job ends.
    setup: tuple[tuple[str, ...], ...] = ()
    teardown: tuple[
        str, ...
    ] = ()  # Undoes them once no replica is left, however the job ended; the guard runs it.
    max_restarts: int = 5  # Bound on restarts after errors and, counted apart, after preemptions.
    timeout_s: int | None = (
        None  # From the start of the replicas until all are asked to stop; None is for ever.
    )
    # Whether the program is known to write status files: a long silence is then judged frozen.
    reports: bool = True
    notes: tuple[str, ...] = ()  # How the machine was divided, for people.

    @property
    def records_dir(self) -> str:
        """Directory of the launcher's lock and journal: the job's if it is on this machine, else that of the logs."""
        return self.log_dir if is_remote(self.job_dir) else self.job_dir

    def to_json(self) -> str:
        """Returns the plan for people and golden files."""
        return json.dumps(dataclasses.asdict(self), indent=2)
