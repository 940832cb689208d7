"""The cluster file: which machines a training job runs on, and how many of each.

Each key is described once: pydantic reads and writes it, checks its rules, and has its meaning. A
key that is `VERTEX_ONLY` is heeded by that back end alone, one that is `LOCAL_ONLY` by the others;
who ignores a key that is set says so. `lookup.load_cluster` reads a file.

for role, pool in cluster.pools.items(): ...
Cluster.from_json(cluster.to_json()) == cluster
"""

import dataclasses
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
SYNC = "--sync"  # The trainer's flag that a strategy stands for.
STRATEGIES: tuple[str, ...] = get_args(Strategy)
# The strategies that can have a pool.
STRATEGIES_WITH = {
    "worker": ("multi_worker_mirrored", "parameter_server"),
    "ps": ("parameter_server",),
}
VERTEX_ONLY, LOCAL_ONLY = "heeded by the vertex back end alone", "ignored by it"  # Marks of a key.
# TensorFlow's worker of a parameter-server job fails in its first step if it has several GPUs; the
# chief there hands out the work, and parameter servers only add numbers up.
_MOST_GPUS = {"parameter_server": {"chief": 0, "worker": 1, "ps": 0}, "one_device": {"chief": 1}}


def most_gpus(strategy: str, role: str) -> float:
    """Returns the number of GPUs that a replica can compute on; infinite where it has no bound, or more do no harm."""
    return _MOST_GPUS.get(strategy, {}).get(role, math.inf)


MachineType = Annotated[Name, AfterValidator(check_machine)]


class Accelerator(Model, use_attribute_docstrings=True):
    """The GPUs of one machine."""

    type: Annotated[Name, AfterValidator(check_gpu), VERTEX_ONLY]
    """GPU type, as Vertex AI calls it."""
    count: number(1, 16) = 1
    """GPUs of each machine; every machine type has its own allowed counts."""


class MachineSpec(Model, use_attribute_docstrings=True):
    """A machine and its GPUs."""

    machine: MachineType
    """Machine type."""
    accelerator: Accelerator | None = None
    """GPUs of each replica; none without it."""

    @model_validator(mode="after")
    def _is_offered(self) -> Self:
        if self.machine:
            check_gpus(self.machine, self.accelerator.type if self.accelerator else "", self.gpus)
        return self

    @property
    def gpus(self) -> int:
        """GPUs of each replica."""
        return self.accelerator.count if self.accelerator else 0

    @property
    def shape(self) -> str:
        """The machine and its GPUs, for people."""
        gpus = f" with {self.gpus} {self.accelerator.type}" if self.accelerator else ""
        return f"{self.machine}{gpus}"


class Pool(MachineSpec):
    """Equal replicas of one role."""

    machine: Annotated[MachineType | None, VERTEX_ONLY] = None
    """Machine type; only Vertex AI needs one."""
    replicas: number(1, 1000) = 1
    """How many; exactly 1 of chief and evaluator."""
    alternatives: Annotated[tuple[MachineSpec, ...], VERTEX_ONLY] = ()
    """What to take, in this order, when Vertex AI has none of these machines."""

    def choice(self, k: int) -> Self:
        """Returns the pool on its k-th machines, or the last if it has fewer."""
        spec = [self, *self.alternatives][: k + 1][-1]
        return self.model_copy(
            update={"machine": spec.machine, "accelerator": spec.accelerator, "alternatives": ()}
        )


class Disk(Model, use_attribute_docstrings=True):
    """Boot disk of each replica."""

    type: Literal["pd-ssd", "pd-standard", "hyperdisk-balanced"] = "pd-ssd"
    """Kind of disk."""
    size_gb: number(100, 64_000) = 100
    """Size in GB."""


class Scheduling(Model, use_attribute_docstrings=True):
    """How machines are obtained, and for how long."""

    strategy: Annotated[Literal["STANDARD", "SPOT"], VERTEX_ONLY] = "STANDARD"
    """STANDARD machines stay, SPOT ones are cheap and may be taken away."""
    timeout: Duration | None = None
    """Time limit of the job: a number with s, m, h or d, at most 30d; without it the back end's (Vertex AI: 7d)."""
    max_restarts: number(0, 1000) = 5
    """Bound on restarts after errors and, counted apart, after preemptions; of those after Vertex AI's own, too."""

    @property
    def timeout_s(self) -> int | None:
        """The time limit in seconds, if there is one."""
        return seconds(self.timeout) if self.timeout else None


class Cluster(Model, use_attribute_docstrings=True):
    """What a training job runs on; docs/CLUSTERS.md says more."""

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
    disk: Annotated[Disk | None, VERTEX_ONLY] = None
    """Boot disk of each replica on Vertex AI; without it 100 GB of what its machine boots from."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    """How machines are obtained, for how long, and how often the job starts again."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; integers that became floats on the way are integers again."""
        try:
            return cls.read(documents.parse_json(text))
        except ValueError as error:
            raise UserError(f"cluster as JSON: {error}") from None

    def to_json(self) -> str:
        """Returns the content of the cluster file as one line of JSON, every default filled in."""
        return json.dumps(self.model_dump(exclude_none=True))

    @property
    def pools(self) -> dict[str, Pool]:
        """The pools that exist, in the order chief, worker, ps, evaluator."""
        return {role: pool for role in ROLES if (pool := getattr(self, role))}

    @property
    def choices(self) -> list[Self]:
        """The cluster on its own machines, on the first alternatives of all pools, on the second ones, ...

        A pool with fewer alternatives than another keeps its last.
        """
        most = max(len(pool.alternatives) for pool in self.pools.values())
        return [
            self.model_copy(update={role: pool.choice(k) for role, pool in self.pools.items()})
            for k in range(most + 1)
        ]

    @property
    def members(self) -> list[tuple[str, int]]:
        """Each replica as its role and its index among those of the role, in the order of the pools."""
        return [
            (role, index) for role, pool in self.pools.items() for index in range(pool.replicas)
        ]

    @property
    def replicas(self) -> int:
        """Replicas of all pools together."""
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
                    f"{{replicas: 1}}', "
                    "or write 'strategy: multi_worker_mirrored' and no ps"
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
                    f"job computes on {most}; "
                    "leave the others out, or write another strategy"
                )
            allowed = BOOT_DISKS.get(pool.machine)
            if self.disk and allowed and self.disk.type not in allowed:
                raise UserError(
                    f"disk.type: {role}'s {pool.machine} does not boot from {self.disk.type} "
                    "(allowed: "
                    f"{', '.join(allowed)}); write one that all machines boot from, or remove disk"
                )
        if (
            self.strategy == "multi_worker_mirrored"
            and self.worker
            and self.worker.gpus != self.chief.gpus
        ):
            raise UserError(
                f"worker.accelerator: {self.worker.gpus} GPUs, and the chief has "
                f"{self.chief.gpus}; replicas that "
                "compute every step together need equal numbers, so write the same accelerator "
                "for both"
            )


@dataclasses.dataclass(kw_only=True)
class Source:
    """Content of the cluster file, scale tier or older file that `--cluster` names, and notes of what was changed in it."""

    name: str  # Path or scale tier, as the user gave it.
    values: Any = None  # The content of a cluster file, unchecked.
    notes: list[str] = dataclasses.field(
        default_factory=list
    )  # What was translated or has no effect.
    # Where other machines, or fewer, run than the file says, or something that it demands is left
    # out.
    replacements: list[str] = dataclasses.field(default_factory=list)
    region: str | None = None
    args: tuple[str, ...] = ()  # Flags of the trainer.
    job_dir: str | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster, checked."""
        with about(self.name):
            return Cluster.read(self.values)

    def trainer_flags(self, flags: Sequence[str]) -> list[str]:
        """Returns the flags of the trainer, else those of the file, without `--sync`, which the strategy stands for."""
        if flags and self.args:
            self.notes.append(
                "trainingInput.args: not used, as flags are given to the trainer here"
            )
        chosen = [flag for flag in (flags or self.args) if flag != SYNC]
        if self.job_dir and not any(flag.startswith(("--job-dir", "--job_dir")) for flag in chosen):
            chosen += ["--job-dir", self.job_dir]
        return chosen

    def print_notes(self) -> None:
        """Prints a line to standard error for each value that was replaced, and for each note."""
        for kind, texts in (("replaced", self.replacements), ("note", self.notes)):
            for text in texts:
                print(f"{kind}: {self.name}: {text}", file=sys.stderr)

    def refuse_replacements(self) -> None:
        """Raises a UserError if anything else runs than the file says."""
        if self.replacements:
            texts = "; ".join(self.replacements)
            raise UserError(
                f"{self.name}: --strict allows no replacement: {texts}; edit the file, or leave "
                "--strict out"
            )
