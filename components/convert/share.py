"""Which pieces of a source one of several tasks does: `share_of("1/4").of(10)` are 1, 5 and 9."""

import dataclasses
import os

from trainer.replicas.member import ROLES, from_environment


@dataclasses.dataclass(frozen=True)
class Share:
    """That of a task, counted from 0, among so many."""

    index: int
    count: int

    def of(self, pieces: int) -> range:
        """Their numbers."""
        return range(self.index, pieces, self.count)


def share_of(task: str | None) -> Share:
    """The share that `I/N` says, or that `auto` gives the replica of the environment; None is all of it, and others are a ValueError."""
    if task is None:
        return Share(0, 1)
    if task == "auto":
        member = from_environment(os.environ)
        replicas = [(role, i) for role in ROLES for i in range(len(member.addresses.get(role, ())))]
        return Share(replicas.index((member.role, member.index)), len(replicas)) if replicas else Share(0, 1)
    index, count = map(int, task.split("/"))
    if not 0 <= index < count:
        raise ValueError(task)
    return Share(index, count)
