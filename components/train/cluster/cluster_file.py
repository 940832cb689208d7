"""The cluster file: which machines a training job runs on, and how many of each.

    cluster = lookup.load_cluster("clusters/local.yaml")
    for role, pool in cluster.pools.items(): ...
    Cluster.from_json(cluster.to_json()) == cluster

Each key is a field of a pydantic model, which reads and writes it and checks its rules. The text
below a field is the description of the key in the JSON schema and in docs/CLUSTERS.md. A key whose
field is marked with a `Place`, or several, is used by back ends of these places alone. A back end
prints which keys of a file it ignores (`Backend.ignored`).
"""

import dataclasses
import enum
import json
import math
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from common import documents
from common.errors import UserError, about
from common.validation import Duration, Model, Name, number, seconds
from components.train.cluster.machines import BOOT_DISKS, check_gpu, check_gpus, check_machine
from trainer.cluster.member import ROLES

Strategy = Literal["one_device", "mirrored", "multi_worker_mirrored", "parameter_server"]
# Flag of the trainer that asks for synchronous training. It is removed from the flags of replicas,
# since the strategy already says it.
SYNC = "--sync"
STRATEGIES: tuple[str, ...] = get_args(Strategy)
# The strategies with which a cluster may have workers or parameter servers.
STRATEGIES_WITH = {
    "worker": ("multi_worker_mirrored", "parameter_server"),
    "ps": ("parameter_server",),
}
# Maximum number of GPUs by strategy and role. In a parameter-server job, TensorFlow's worker fails
# in its first step if it has several GPUs, the chief only distributes the work, and parameter
# servers only apply updates.
_MOST_GPUS = {"parameter_server": {"chief": 0, "worker": 1, "ps": 0}, "one_device": {"chief": 1}}


class Place(enum.Enum):
    """Place where the replicas of a back end run."""

    LOCAL = enum.auto()  # This machine, containers on it, or hosts.
    VERTEX = enum.auto()
    KUBERNETES = enum.auto()


def most_gpus(strategy: str, role: str) -> float:
    """Returns the maximum number of GPUs of a replica; `math.inf` if there is no bound."""
    return _MOST_GPUS.get(strategy, {}).get(role, math.inf)


MachineType = Annotated[Name, AfterValidator(check_machine)]
PodTemplate = Annotated[dict[str, Any] | None, Place.KUBERNETES]


class Accelerator(Model, use_attribute_docstrings=True):
    """The GPUs of one machine."""

    type: Annotated[Name, AfterValidator(check_gpu), Place.VERTEX]
    """GPU type, as Vertex AI calls it."""
    count: Annotated[int, number(1, 16)] = 1
    """GPUs of each machine; every machine type has its own allowed counts."""


class _Hardware(Model, use_attribute_docstrings=True):
    """GPUs, and the machine that they belong to if it is named."""

    machine: MachineType | None
    accelerator: Accelerator | None = None
    """GPUs of each replica; none without it."""

    @model_validator(mode="after")
    def _is_offered(self) -> Self:
        if self.machine:
            check_gpus(self.machine, self.accelerator.type if self.accelerator else "", self.gpus)
        return self

    @property
    def gpus(self) -> int:
        """Number of GPUs of each replica."""
        return self.accelerator.count if self.accelerator else 0

    @property
    def shape(self) -> str:
        """The machine and its GPUs for people, such as `n1-standard-8 with 1 NVIDIA_TESLA_T4`.

        A machine that is not named is shown as `None`.
        """
        gpus = f" with {self.gpus} {self.accelerator.type}" if self.accelerator else ""
        return f"{self.machine}{gpus}"


class MachineSpec(_Hardware):
    """A machine and its GPUs."""

    machine: MachineType
    """Machine type."""


class Pool(_Hardware):
    """Equal replicas of one role."""

    machine: Annotated[MachineType | None, Place.VERTEX, Place.KUBERNETES] = None
    """Machine type; only Vertex AI needs one."""
    replicas: Annotated[int, number(1, 1000)] = 1
    """How many; exactly 1 of chief and evaluator."""
    alternatives: Annotated[tuple[MachineSpec, ...], Place.VERTEX] = ()
    """What to take, in this order, when Vertex AI has none of these machines."""
    pod_template: PodTemplate = None
    """Patch of the pods of this pool on Kubernetes, after that of all pools."""

    def choice(self, k: int) -> Self:
        """Returns this pool on one of the machines that it may run on, without alternatives.

        Args:
          k: 0 for the pool's own machine, k for its k-th alternative. If there are fewer
            alternatives, the last one is taken, and without any the pool's own machine.
        """
        spec = (self.alternatives[:k] or (self,))[-1]
        return self.model_copy(
            update={"machine": spec.machine, "accelerator": spec.accelerator, "alternatives": ()}
        )


class Disk(Model, use_attribute_docstrings=True):
    """Boot disk of each replica."""

    type: Literal["pd-ssd", "pd-standard", "hyperdisk-balanced"] = "pd-ssd"
    """Kind of disk."""
    size_gb: Annotated[int, number(100, 64_000)] = 100
    """Size in GB."""


class Scheduling(Model, use_attribute_docstrings=True):
    """Kind of machines, time limit and restarts of a job."""

    strategy: Annotated[Literal["STANDARD", "SPOT"], Place.VERTEX] = "STANDARD"
    """STANDARD machines stay, SPOT ones are cheap and may be taken away."""
    timeout: Duration | None = None
    """Time limit of the job, such as 90m or 12h, at most 30d; without it Vertex AI's 7d."""
    max_restarts: Annotated[int, number(0, 1000)] = 5
    """Most restarts after errors, and as many after preemptions and Vertex AI's own failures."""

    @property
    def timeout_s(self) -> int | None:
        """Time limit in seconds; None if the file sets none."""
        return seconds(self.timeout) if self.timeout else None


class Cluster(Model, use_attribute_docstrings=True):
    """Machines and strategy of a training job; docs/CLUSTERS.md describes each key."""

    strategy: Strategy
    """How replicas train together."""
    chief: Pool
    """The replica that saves, exports and decides; exactly 1."""
    worker: Pool | None = None
    """Further replicas that train."""
    ps: Pool | None = None
    """Parameter servers, which hold the variables."""
    evaluator: Pool | None = None
    """Scores every checkpoint beside the training; at most 1."""
    disk: Annotated[Disk | None, Place.VERTEX] = None
    """Boot disk of each replica on Vertex AI; without it 100 GB of what its machine boots from."""
    pod_template: PodTemplate = None
    """Patch of all pods on Kubernetes: resources, node selectors, tolerations, volumes, secrets."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    """How machines are obtained, for how long, and how often the job starts again."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Returns the cluster that `to_json` wrote.

        Whole numbers may be written as floats such as 4.0, which pipelines make of integers.

        Raises:
          UserError: If the text is not valid JSON, or breaks a rule of cluster files.
        """
        try:
            return cls.read(documents.parse_json(text))
        except ValueError as error:
            raise UserError(f"cluster as JSON: {error}") from None

    def to_json(self) -> str:
        """Returns the content of the cluster file as a line of JSON, with all defaults but None."""
        return json.dumps(self.model_dump(exclude_none=True))

    @property
    def pools(self) -> dict[str, Pool]:
        """The pools that exist, in the order chief, worker, ps, evaluator."""
        return {role: pool for role in ROLES if (pool := getattr(self, role))}

    @property
    def choices(self) -> list[Self]:
        """The clusters to try one after another when Vertex AI lacks machines.

        The first has the machines of the file, the k-th after it the k-th alternatives of all
        pools. A pool with fewer alternatives keeps its last one.
        """
        most = max(len(pool.alternatives) for pool in self.pools.values())
        return [
            self.model_copy(update={role: pool.choice(k) for role, pool in self.pools.items()})
            for k in range(most + 1)
        ]

    @property
    def members(self) -> list[tuple[str, int]]:
        """Role and index of each replica, such as `("worker", 1)`, in the order of `pools`.

        The index counts from 0 within the role.
        """
        return [
            (role, index) for role, pool in self.pools.items() for index in range(pool.replicas)
        ]

    @property
    def replicas(self) -> int:
        """Number of replicas of all pools together."""
        return len(self.members)

    @model_validator(mode="after")
    def _fits_the_strategy(self) -> Self:
        for role, strategies in STRATEGIES_WITH.items():
            if role in self.pools and self.strategy not in strategies:
                raise UserError(
                    f"{role}: {self.strategy} has none; remove {role}, or write 'strategy: "
                    f"{strategies[0]}'"
                )
            if role not in self.pools and self.strategy == "parameter_server":
                raise UserError(
                    f"{role}: missing, but parameter_server needs at least 1; add '{role}: "
                    f"{{replicas: 1}}', or write 'strategy: multi_worker_mirrored' and no ps"
                )
        self._check_pools()
        for k, choice in enumerate(self.choices[1:]):
            with about(f"alternatives[{k}]"):
                choice._check_pools()
        return self

    def _check_pools(self) -> None:
        for role, pool in self.pools.items():
            if role in ("chief", "evaluator") and pool.replicas != 1:
                raise UserError(
                    f"{role}: {pool.replicas} replicas, but a job has at most 1; write 'replicas: "
                    "1'"
                )
            most = most_gpus(self.strategy, role)
            if pool.gpus > most:
                raise UserError(
                    f"{role}.accelerator: {pool.gpus} GPUs, but the {role} of a {self.strategy} "
                    f"job computes on {most}; leave the others out, or write another strategy"
                )
            allowed = BOOT_DISKS.get(pool.machine or "")
            if self.disk and allowed and self.disk.type not in allowed:
                raise UserError(
                    f"disk.type: {role}'s {pool.machine} does not boot from {self.disk.type} "
                    f"(allowed: {', '.join(allowed)}); write one that all machines boot from, or "
                    "remove disk"
                )
        if (
            self.strategy == "multi_worker_mirrored"
            and self.worker
            and self.worker.gpus != self.chief.gpus
        ):
            raise UserError(
                f"worker.accelerator: {self.worker.gpus} GPUs, and the chief has "
                f"{self.chief.gpus}; replicas that compute every step together need equal numbers, "
                "so write the same accelerator for both"
            )


@dataclasses.dataclass(kw_only=True)
class Source:
    """Content of what `--cluster` names, with notes of what was changed in it.

    Attributes:
      name: Path of the file, or scale tier or legacy machine, as the user gave it.
      values: Content as a cluster file has it, not yet checked.
      notes: Texts about keys that were translated or have no effect.
      replacements: Texts about other or fewer machines than the file asks for, and about settings
        that it demands and that are left out. `--strict` refuses them.
      region: Region that an AI Platform file names, or None.
      args: Flags of the trainer that an AI Platform file has.
      job_dir: Job directory that an AI Platform file names, or None.
    """

    name: str
    values: Any = None
    notes: list[str] = dataclasses.field(default_factory=list)
    replacements: list[str] = dataclasses.field(default_factory=list)
    region: str | None = None
    args: tuple[str, ...] = ()
    job_dir: str | None = None

    @property
    def cluster(self) -> Cluster:
        """The checked cluster.

        Raises:
          UserError: If `values` break a rule of cluster files; the message begins with `name`.
        """
        with about(self.name):
            return Cluster.read(self.values)

    def trainer_flags(self, flags: Sequence[str]) -> list[str]:
        """Returns the flags for the trainer.

        The file's job directory is added if no flag names one, and `--sync` is removed, since the
        strategy already says it. If both the user and the file give flags, a note says that those
        of the file are not used.

        Args:
          flags: Flags of the user; if there are none, those of the file are taken.
        """
        if flags and self.args:
            self.notes.append(
                "trainingInput.args: not used, as flags are given to the trainer here"
            )
        chosen = [flag for flag in (flags or self.args) if flag != SYNC]
        if self.job_dir and not any(flag.startswith(("--job-dir", "--job_dir")) for flag in chosen):
            chosen += ["--job-dir", self.job_dir]
        return chosen

    def print_notes(self) -> None:
        """Prints each replacement and each note as a line on standard error."""
        for kind, texts in (("replaced", self.replacements), ("note", self.notes)):
            for text in texts:
                print(f"{kind}: {self.name}: {text}", file=sys.stderr)

    def refuse_replacements(self) -> None:
        """Raises a UserError that lists the replacements, if there are any (`--strict`)."""
        if self.replacements:
            texts = "; ".join(self.replacements)
            raise UserError(
                f"{self.name}: --strict allows no replacement: {texts}; edit the file, or leave "
                "--strict out"
            )
