"""The interface of a back end: where and how the replicas of a job run."""

import abc
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from common.cli import Flags
from common.validation import Model
from components.train.backends.program import Program
from components.train.cluster.cluster_file import LOCAL_ONLY, VERTEX_ONLY, Cluster
from components.train.supervision.output import Output
from trainer.cluster.member import ROLES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A job to run."""

    cluster: Cluster
    program: Program  # What every replica runs.
    # Whether it is only planned, so that what is missing on this machine does not matter.
    dry_run: bool = False
    region: str | None = None  # Where the cluster file wants it to run, if it says so.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """State and progress of a job."""

    # `starting`, `running`, `done`, `stopped`, `failed` or `killed` (the launcher ended without a
    # word).
    state: str
    exit_code: int  # 0 while it runs, and if it is done or all is saved.
    lines: Sequence[
        str
    ]  # Who runs it, since when and the exit code; each replica's progress; what happened last.


class Backend(abc.ABC):
    """A place where the replicas of a job run.

    A back end is made of its own flags. Every method may raise a `UserError`, after which nothing
    of the job runs that the call has started. One job directory has one job at a time, and the same
    job submitted again resumes it.

    A back end promises, and `tests/contracts/test_backend.py` shows of each:

    * Exit codes are those of docs/RUNNING.md, whatever a replica runs on.
    * Replicas that end are restarted as `restart_policy` says, with the key
      `scheduling.max_restarts` as the bound.
    * A signal to this process, and `cancel`, let the replicas save before they end.
    * Each key of the cluster file changes the plan, or `ignored` names it. Each flag that is not in
      `Options` is refused.

    Attributes:
      name: Value of `--backend`.
      Options: The flags of the back end.
      ignores_because: Why it ignores keys of the cluster file, for people.
      control_flags: Names of flags that `status`, `cancel` and `logs` take.
    """

    name: ClassVar[str]
    Options: ClassVar[type[Flags]]
    ignores_because: ClassVar[str]
    control_flags: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: Any) -> None:
        """Takes an instance of `Options`."""
        self.options = options

    @abc.abstractmethod
    def plan(self, job: Job) -> contextlib.AbstractContextManager[Any]:
        """Checks a job and describes what is to be started; starts nothing.

        Args:
          job: What to run.

        Returns:
          A context manager that yields the plan, which `submit` takes and which has `to_json` and
          `notes` for people. What the plan needs, such as ports, is reserved until the block ends.

        Raises:
          UserError: If the job cannot run so.
        """

    @abc.abstractmethod
    def submit(self, plan: Any, output: Output) -> int:
        """Runs a plan to the end of its job.

        Args:
          plan: What `plan` has yielded; its block is still open.
          output: Shows what the replicas write and what happens to the job.

        Returns:
          The exit code: 0 if the job is done.

        Raises:
          UserError: If another launcher works on the job directory, or the job is refused.
        """

    @abc.abstractmethod
    def status(self, job_dir: str) -> Status:
        """Returns how the newest job of a directory is.

        Raises:
          UserError: If no job ran there.
        """

    @abc.abstractmethod
    def cancel(self, job_dir: str) -> int:
        """Has the job of a directory save and end, and waits for that.

        Returns:
          0 if the job is done or all is saved, 137 if a replica had to be killed, else the job's
          exit code.

        Raises:
          UserError: If no job runs there.
        """

    @abc.abstractmethod
    def logs(self, job_dir: str) -> Iterator[tuple[str, str]]:
        """Yields the replica (`worker/1`) and the text of each line that the newest job of a directory has written.

        Lines of one replica are in order.

        Raises:
          UserError: If no job ran there.
        """

    def ignored(self, cluster: Cluster) -> tuple[str, ...]:
        """Returns a line that names the keys that are set and that the back end ignores, if there are any."""
        names = ", ".join(
            dict.fromkeys(self._ignored(cluster, ""))
        )  # Each pool's keys are named once.
        return (
            (f"--backend {self.name} ignores {names}, as {self.ignores_because}",) if names else ()
        )

    def _ignored(self, model: Model, above: str) -> Iterator[str]:
        """Yields the name of each key that has not its default, and that this back end does not heed."""
        for key, field in type(model).model_fields.items():
            value = getattr(model, key)
            is_heeded = (LOCAL_ONLY if self.name == "vertex" else VERTEX_ONLY) not in field.metadata
            if isinstance(value, Model) and is_heeded:
                yield from self._ignored(value, "" if key in ROLES else f"{above}{key}.")
            elif not is_heeded and value not in (None, field.default):
                yield above + key
