"""The cluster file: which machines a training job runs on, and how many of each.

cluster = Cluster.load("clusters/local-ps.yaml")  # or a file of AI Platform, or "STANDARD_1"
for role, pool in cluster.pools.items(): ...
Cluster.from_json(cluster.to_json()) == cluster
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import model_validator

from common import bounded_json
from common.errors import UserError, about
from components.train.cluster import checks, lookup, notes, rules, strategies
from components.train.cluster.keys import Keys


class Cluster(Keys):
    """What a training job runs on; its pools keep to the rules."""

    @model_validator(mode="after")
    def _keeps_to_the_rules(self) -> Self:
        rules.check(self)
        return self

    @classmethod
    def load(cls, name: str | Path, flags: Sequence[str] = ()) -> Self:
        """Reads a cluster file, a job file of AI Platform, or the name of a scale tier.

        The trainer's flags may decide the strategy. What is not as the file says is told on standard error.
        """
        found = strategies.resolve(lookup.read(name), flags)
        cluster = cls.of(found)
        notes.tell(found.name, found.notes)
        if found.args or found.job_dir:
            unused = notes.Note(place="args, jobDir", text="not used: this command has flags of its own for them")
            notes.tell(found.name, [unused])
        return cluster

    @classmethod
    def of(cls, found: notes.Source) -> Self:
        """The cluster that a source, its strategy decided, describes."""
        if found.values is None:
            raise UserError(f"{found.name}: empty; it needs at least 'strategy: one_device' and 'chief: {{}}'")
        with about(found.name):
            return checks.read(cls, found.values)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; whole numbers that became floats on the way are integers again."""
        try:
            return checks.read(cls, bounded_json.parse(text))
        except ValueError as error:
            raise UserError(f"cluster as JSON: {error}") from None

    def to_json(self) -> str:
        """The content of the cluster file as one line of JSON, every default filled in."""
        return json.dumps(self.model_dump(exclude_none=True))
