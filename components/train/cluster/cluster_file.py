"""The cluster file: which machines a training job runs on, and how many of each.

Synopsis:

    cluster = Cluster.load("clusters/local-ps.yaml")  # or a file of AI Platform, or "STANDARD_1"
    for role, pool in cluster.pools.items(): ...
    Cluster.from_json(cluster.to_json()) == cluster
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from components.train.cluster import lookup, machines, notes, strategies
from components.train.cluster.ai_platform import MAX_REPLICAS
from components.train.cluster.keys import Key, read, write
from components.train.cluster.machines import Places
from components.train.cluster.strategies import STRATEGIES
from trainer.base.errors import UserError
from trainer.replicas.member import ROLES

SCHEDULING_STRATEGIES = ("STANDARD", "SPOT", "FLEX_START")
DISK_TYPES = ("pd-ssd", "pd-standard", "hyperdisk-balanced")
FLEX_START_GPUS = (
    *("NVIDIA_L4", "NVIDIA_TESLA_A100", "NVIDIA_A100_80GB", "NVIDIA_H100_80GB", "NVIDIA_H100_MEGA_80GB"),
    *("NVIDIA_H200_141GB", "NVIDIA_B200"),
)
FLEX_START_TIMEOUT_S = 7 * 86_400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accelerator:
    """The GPUs of one machine."""

    type: Annotated[
        str,
        Key(doc="GPU type, as Vertex AI calls it.", names=machines.gpu_types, example="'type: NVIDIA_TESLA_T4'"),
    ]
    count: Annotated[
        int, Key(doc="GPUs of each machine; every machine type has its own allowed counts.", low=1, high=16)
    ] = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    """Equal replicas of one role."""

    machine: Annotated[str | None, Key(doc="Machine type; only Vertex AI needs one.", names=machines.offered)] = None
    replicas: Annotated[int, Key(doc="How many; exactly 1 of chief and evaluator.", low=1, high=MAX_REPLICAS)] = 1
    accelerator: Annotated[Accelerator | None, Key(doc="GPUs of each replica; none without it.")] = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disk:
    """Boot disk of each replica."""

    type: Annotated[str, Key(doc="Kind of disk.", choices=DISK_TYPES)] = "pd-ssd"
    size_gb: Annotated[int, Key(doc="Size in GB.", low=100, high=64_000)] = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scheduling:
    """How machines are obtained, and for how long."""

    strategy: Annotated[
        str,
        Key(
            doc="STANDARD machines stay, SPOT ones are cheap and may be taken away, FLEX_START ones are waited for.",
            choices=SCHEDULING_STRATEGIES,
        ),
    ] = "STANDARD"
    timeout_s: Annotated[
        int | None,
        Key(doc="Time limit of the job: a number with s, m, h or d; without it the back end's (Vertex AI: 7d)."),
    ] = None
    max_restarts: Annotated[
        int, Key(doc="Bound on restarts after errors and, counted apart, after preemptions.", low=0, high=1000)
    ] = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a training job runs on.

    Raises:
      UserError: If the pools do not fit the strategy, or a machine is not offered.
    """

    strategy: Annotated[
        str,
        Key(
            doc="How replicas train together.",
            choices=STRATEGIES,
            example=f"'strategy: one_device' (known: {', '.join(STRATEGIES)})",
        ),
    ]
    chief: Annotated[Pool, Key(doc="The replica that saves, exports and decides; exactly 1.", example="'chief: {}'")]
    worker: Annotated[Pool | None, Key(doc="Further replicas that train.")] = None
    ps: Annotated[Pool | None, Key(doc="Parameter servers, which hold the variables.")] = None
    evaluator: Annotated[Pool | None, Key(doc="Scores every checkpoint beside the training; at most 1.")] = None
    disk: Annotated[Disk | None, Key(doc="Boot disk of each replica on Vertex AI; without it 100 GB of pd-ssd.")] = None
    scheduling: Annotated[Scheduling, Key(doc="How machines are obtained, and for how long.")] = Scheduling()

    def __post_init__(self) -> None:
        self._check_roles()
        for role, pool in self.pools.items():
            gpus = pool.accelerator
            machines.check(Places.of(role), pool.machine, gpus.type if gpus else None, gpus.count if gpus else 0)
        if self.scheduling.strategy == "FLEX_START":
            self._check_flex_start()

    @property
    def pools(self) -> dict[str, Pool]:
        """The pools that exist, in the order chief, worker, ps, evaluator."""
        return {role: pool for role in ROLES if (pool := getattr(self, role))}

    @property
    def replicas(self) -> int:
        """Replicas of all pools together."""
        return sum(pool.replicas for pool in self.pools.values())

    @classmethod
    def load(cls, name: str | Path, flags: Sequence[str] = ()) -> Self:
        """Reads a cluster file, a job file of AI Platform, or the name of a scale tier.

        What is not as the file says is told on standard error.

        Args:
          name: Path or tier.
          flags: The trainer's, which may decide the strategy.

        Raises:
          UserError: If it is missing, not YAML, or says something that cannot be; names file, place, value and repair.
        """
        found = strategies.resolve(lookup.read(name), flags)
        cluster = cls.of(found)
        notes.tell(found.name, found.notes)
        if found.args or found.job_dir:
            unused = notes.Note(place="args, jobDir", text="not used: this command has flags of its own for them")
            notes.tell(found.name, [unused])
        return cluster

    @classmethod
    def of(cls, found: lookup.Source) -> Self:
        """The cluster that a source, its strategy decided, describes.

        Raises:
          UserError: As `load` does.
        """
        if found.values is None:
            raise UserError(f"{found.name}: empty; it needs at least 'strategy: one_device' and 'chief: {{}}'")
        try:
            return read(cls, found.values)
        except UserError as error:
            raise UserError(f"{found.name}: {error}") from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; whole numbers that became floats on the way are integers again.

        Raises:
          UserError: As `load` does.
        """
        try:
            return read(cls, json.loads(text))
        except (UserError, ValueError, RecursionError) as error:
            raise UserError(f"cluster as JSON: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The content of the cluster file, every default filled in."""
        return write(self)

    def to_json(self) -> str:
        """The same as one line of JSON."""
        return json.dumps(self.to_dict())

    def _check_roles(self) -> None:
        if self.chief.replicas != 1:
            raise UserError(
                f"chief.replicas: {self.chief.replicas}, but a job has 1 chief; put the others under worker"
            )
        if self.evaluator and self.evaluator.replicas != 1:
            raise UserError(f"evaluator.replicas: {self.evaluator.replicas}, but a job has at most 1; write 1")
        if self.strategy == "parameter_server":
            for role in ("ps", "worker"):
                if role not in self.pools:
                    raise UserError(
                        f"{role}: missing, but parameter_server needs at least 1; add '{role}: {{replicas: 1}}', "
                        "or write 'strategy: multi_worker_mirrored' and no ps"
                    )
        elif self.ps:
            raise UserError(f"ps: {self.strategy} has none; remove ps, or write 'strategy: parameter_server'")
        elif self.worker and self.strategy != "multi_worker_mirrored":
            raise UserError(
                f"worker: {self.strategy} has none; remove worker, or write 'strategy: multi_worker_mirrored'"
            )

    def _check_flex_start(self) -> None:
        """Source: Vertex AI's page on Dynamic Workload Scheduler."""
        place, instead = "scheduling.strategy: FLEX_START", "write SPOT or STANDARD"
        shapes = {role: (pool.machine, pool.accelerator) for role, pool in self.pools.items()}
        for role, shape in shapes.items():
            if shape != shapes["chief"]:
                raise UserError(f"{place} needs the same machine in every pool, and {role} differs; {instead}")
        gpus = self.chief.accelerator
        if not gpus or gpus.type not in FLEX_START_GPUS:
            what = gpus.type if gpus else "none"
            raise UserError(
                f"{place} needs GPUs, one of {', '.join(FLEX_START_GPUS)}, and the chief has {what}; {instead}"
            )
        if (self.scheduling.timeout_s or 0) > FLEX_START_TIMEOUT_S:
            raise UserError("scheduling.timeout: FLEX_START lends machines for at most 7 days; write 7d or less")
