"""The interface of a back end: where and how the replicas of a job run."""

import abc
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from common.cli import Flags
from common.validation import Model
from components.train.backends.program import Program
from components.train.cluster.cluster_file import Cluster, Place
from components.train.supervision.output import Output
from trainer.cluster.member import ROLES


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A job to run.

    Attributes:
      cluster: Machines or processes to run on.
      program: Program that every replica runs.
      dry_run: Whether the job is only planned, so that things that only its start needs may be
        missing: Docker, the digest of an image, a project.
      region: Region that the AI Platform file names, or None.
    """

    cluster: Cluster
    program: Program
    dry_run: bool = False
    region: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Status:
    """State and progress of a job.

    Attributes:
      state: `starting`, `running`, `done`, `stopped`, `failed` or `killed` (the launcher ended
        without recording why).
      exit_code: 0 while the job runs, if it is done, and if it was stopped and has saved; else the
        job's exit code.
      lines: Text for people: the state with the launcher, times and exit code; the progress of each
        replica, as far as the back end knows it; the newest event or error.
    """

    state: str
    exit_code: int
    lines: Sequence[str]


class Backend(abc.ABC):
    """A place where the replicas of a job run.

    Every method may raise a `UserError` and, if a bucket, Google Cloud or Kubernetes does not
    answer, a `ConnectionError`. Processes that the call has started do not run any more then; only
    a job of Vertex AI or Kubernetes may go on. A job directory has one job at a time, and
    submitting the same job again resumes it.

    Every back end keeps these promises, but for what `KubernetesBackend` lists:

    * Exit codes are those of docs/RUNNING.md, whatever a replica runs on.
    * Replicas that end are restarted as `restart_policy` says, at most as often as
      `scheduling.max_restarts` of the cluster file allows.
    * After a signal to this process, or `cancel`, the replicas save before they end.
    * Each key of the cluster file changes the plan, or `ignored` names it. A flag that is not in
      `Options` is refused.

    Attributes:
      name: Value of `--backend`.
      place: Place where it runs the replicas.
      Options: Class of the flags of the back end.
      ignores_because: Reason, for people, why the back end ignores keys of the cluster file.
      control_flags: Names of the flags that `status`, `cancel` and `logs` use.
    """

    name: ClassVar[str]
    place: ClassVar[Place] = Place.LOCAL
    Options: ClassVar[type[Flags]]
    ignores_because: ClassVar[str]
    control_flags: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: Any) -> None:
        """Keeps the flags, an instance of `Options`."""
        self.options = options

    @abc.abstractmethod
    def plan(self, job: Job) -> contextlib.AbstractContextManager[Any]:
        """Checks a job and plans its processes; starts none of them.

        Args:
          job: Job to run.

        Returns:
          A context manager that yields the plan: an object for `submit`, whose `to_text` returns a
          text for people, in JSON or YAML. Resources of the plan, such as ports, are reserved until
          the block ends.

        Raises:
          UserError: If the job cannot run on this back end.
        """

    @abc.abstractmethod
    def submit(self, plan: Any, output: Output) -> int:
        """Runs a plan and waits until the job ends.

        Where the job can outlive this process, SIGHUP or a repeated signal only ends the waiting.

        Args:
          plan: Plan that `plan` yielded, with its block still open.
          output: Shows the output of the replicas and the events of the job.

        Returns:
          The exit code of the job as in docs/RUNNING.md: 0 if it is done, 128+n after signal n, 124
          at its time limit, 137 if a replica had to be killed before it had saved, 75 if there are
          no machines, else that of the replica that failed.

        Raises:
          UserError: If another launcher works on the job directory, or the job is refused.
        """

    @abc.abstractmethod
    def status(self, job_dir: str) -> Status:
        """Returns the state of the newest job of a directory.

        Raises:
          UserError: If no job ran there, or its records are damaged.
        """

    @abc.abstractmethod
    def cancel(self, job_dir: str) -> int:
        """Asks the job of a directory to save and end, and waits until it has ended.

        Returns:
          0 if the job is done or everything is saved, 137 if a replica had to be killed, else the
          job's exit code.

        Raises:
          UserError: If no job runs there, or it cannot be stopped from this machine.
        """

    @abc.abstractmethod
    def logs(self, job_dir: str) -> Iterator[tuple[str, str]]:
        """Yields the output of the newest job of a directory, line by line.

        Yields:
          Name of the replica, such as `worker/1`, and text of the line without its end. Lines of
          one replica are in order.

        Raises:
          UserError: If no job ran there.
        """

    def ignored(self, cluster: Cluster) -> tuple[str, ...]:
        """Returns a note that names the set keys of the cluster file that this back end ignores.

        Returns:
          One line of text; an empty tuple if no such key is set.
        """
        # The pools have the same keys, and each is named once.
        names = ", ".join(dict.fromkeys(self._ignored(cluster, "")))
        return (
            (f"--backend {self.name} ignores {names}, as {self.ignores_because}",) if names else ()
        )

    def _ignored(self, model: Model, above: str) -> Iterator[str]:
        """Yields the keys of the cluster file, or of a part of it, that are set but ignored here.

        Args:
          model: The cluster, or a part of it.
          above: Text to put before the keys of the part, such as `scheduling.`; empty for the
            cluster and for a pool, whose keys are named without the role.

        Yields:
          Path of each key that this back end ignores and that is neither None nor its default, such
          as `scheduling.strategy`. A key is yielded again for each pool that sets it.
        """
        for key, field in type(model).model_fields.items():
            value = getattr(model, key)
            places = [mark for mark in field.metadata if isinstance(mark, Place)]
            is_heeded = not places or self.place in places
            if isinstance(value, Model) and is_heeded:
                yield from self._ignored(value, "" if key in ROLES else f"{above}{key}.")
            elif not is_heeded and value not in (None, field.default):
                yield above + key
