"""The cluster file: which machines a training job runs on, and how many of each.

Each key is described once: pydantic reads and writes it, checks its rules, and makes the schema for editors. A key that
only some back ends heed names them with `By`; the others say that they ignore it.

cluster = Cluster.load("clusters/local-ps.yaml")  # or a file of AI Platform, or "STANDARD_1"
for role, pool in cluster.pools.items(): ...
Cluster.from_json(cluster.to_json()) == cluster
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from common import bounded_json
from common.errors import UserError, about
from components.train.cluster.lookup import read
from components.train.cluster.machines import FLEX_START_GPUS, MACHINES
from components.train.cluster.pool import VERTEX, By, Disk, Pool
from components.train.cluster.source import Source
from components.train.cluster.strategy import STRATEGIES_WITH, Strategy, most_gpus
from components.train.cluster.validation import Duration, Model, number, seconds
from trainer.cluster.member import ROLES


def _single(pool: Pool) -> Pool:
    if pool.replicas != 1:
        raise ValueError(f"{pool.replicas} replicas, but a job has at most 1; write 'replicas: 1'")
    return pool


class Scheduling(Model):
    """How machines are obtained, and for how long."""

    strategy: Annotated[Literal["STANDARD", "SPOT", "FLEX_START"], By(VERTEX)] = "STANDARD"
    """STANDARD machines stay, SPOT ones are cheap and may be taken away, FLEX_START ones are waited for."""
    timeout: Duration | None = None
    """Time limit of the job: a number with s, m, h or d, at most 30d; without it the back end's (Vertex AI: 7d)."""
    max_restarts: number(0, 1000) = 5
    """Bound on restarts after errors and, counted apart, after preemptions; of those after Vertex AI's own, too."""

    @property
    def timeout_s(self) -> int | None:
        """The time limit in seconds, if there is one."""
        return seconds(self.timeout) if self.timeout else None


class Cluster(Model):
    """What a training job runs on; docs/CLUSTERS.md says more."""

    model_config = ConfigDict(json_schema_extra={"$schema": "http://json-schema.org/draft-07/schema#"})

    strategy: Annotated[Strategy, Field(examples=["one_device"])]
    """How replicas train together."""
    chief: Annotated[Pool, AfterValidator(_single), Field(examples=[{}])]
    """The replica that saves, exports and decides; exactly 1."""
    worker: Pool | None = None
    """Further replicas that train."""
    ps: Pool | None = None
    """Parameter servers, which hold the variables."""
    evaluator: Annotated[Pool, AfterValidator(_single)] | None = None
    """Scores every checkpoint beside the training; at most 1."""
    disk: Annotated[Disk | None, By(VERTEX)] = None
    """Boot disk of each replica on Vertex AI; without it 100 GB of what its machine boots from."""
    scheduling: Scheduling = Field(default_factory=Scheduling)
    """How machines are obtained, for how long, and how often the job starts again."""

    @classmethod
    def load(cls, name: str | Path, flags: Sequence[str] = ()) -> Self:
        """Reads a cluster file, a job file of AI Platform, or the name of a scale tier.

        The trainer's flags may decide the strategy. What differs from the file is printed on standard error.
        """
        source = read(name, flags)
        cluster = cls.of(source)
        if source.args or source.job_dir:
            source.notes.append("args, jobDir: not used: this command has flags of its own for them")
        source.print_notes()
        return cluster

    @classmethod
    def of(cls, source: Source) -> Self:
        """Returns the cluster that a source describes."""
        with about(source.name):
            return cls.read(source.values)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; integers that became floats on the way are integers again."""
        try:
            return cls.read(bounded_json.parse(text))
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
            self.model_copy(update={role: pool.choice(k) for role, pool in self.pools.items()}) for k in range(most + 1)
        ]

    @property
    def members(self) -> list[tuple[str, int]]:
        """Each replica as its role and its index among those of the role, in the order of the pools."""
        return [(role, index) for role, pool in self.pools.items() for index in range(pool.replicas)]

    @property
    def replicas(self) -> int:
        """Replicas of all pools together."""
        return len(self.members)

    @model_validator(mode="after")
    def _fits_the_strategy(self) -> Self:
        for role, strategies in STRATEGIES_WITH.items():
            if role in self.pools and self.strategy not in strategies:
                raise UserError(
                    f"{role}: {self.strategy} has none; remove {role}, or write 'strategy: {strategies[0]}'"
                )
            if role not in self.pools and self.strategy == "parameter_server":
                raise UserError(
                    f"{role}: missing, but parameter_server needs at least 1; add '{role}: {{replicas: 1}}', "
                    "or write 'strategy: multi_worker_mirrored' and no ps"
                )
        for k, choice in enumerate(self.choices):
            with about(f"alternatives[{k - 1}]") if k else contextlib.nullcontext():
                choice._check_gpus()
                choice._check_disk()
                choice._check_flex_start()
        return self

    def _check_gpus(self) -> None:
        for role, pool in self.pools.items():
            most = most_gpus(self.strategy, role)
            if role != "evaluator" and pool.gpus > most:  # Too many of an evaluator do no harm.
                raise UserError(
                    f"{role}.accelerator: {pool.gpus} GPUs, but the {role} of a {self.strategy} job computes on {most}; "
                    "leave the others out, or write another strategy"
                )
        if self.strategy == "multi_worker_mirrored" and self.worker and self.worker.gpus != self.chief.gpus:
            raise UserError(
                f"worker.accelerator: {self.worker.gpus} GPUs, and the chief has {self.chief.gpus}; replicas that "
                "compute every step together need equal numbers, so write the same accelerator for both"
            )

    def _check_disk(self) -> None:
        for role, pool in self.pools.items():
            allowed = MACHINES[pool.machine].boot_disks if pool.machine else ()
            if self.disk and allowed and self.disk.type not in allowed:
                raise UserError(
                    f"disk.type: {role}'s {pool.machine} does not boot from {self.disk.type} (allowed: "
                    f"{', '.join(allowed)}); write one that all machines boot from, or remove disk"
                )

    def _check_flex_start(self) -> None:
        """Source: Vertex AI's page on Dynamic Workload Scheduler."""
        if self.scheduling.strategy != "FLEX_START":
            return
        place, repair = "scheduling.strategy: FLEX_START needs", "write SPOT or STANDARD"
        for role, pool in self.pools.items():
            if pool.shape != self.chief.shape:
                raise UserError(f"{place} the same machine in every pool, and {role} differs; {repair}")
        gpu = self.chief.accelerator.type if self.chief.accelerator else "none"
        if gpu not in FLEX_START_GPUS:
            allowed = ", ".join(sorted(FLEX_START_GPUS))
            raise UserError(f"{place} GPUs, one of {allowed}, and the chief has {gpu}; {repair}")
        if (self.scheduling.timeout_s or 0) > seconds("7d"):
            raise UserError("scheduling.timeout: FLEX_START lends machines for at most 7 days; write 7d or less")
