"""Figures of a finished training, from the files of its job directory."""

import collections
from typing import Any

from trainer.job import identity, journal
from trainer.job.done import Done


def measured(job_dir: str, record: Done) -> dict[str, Any]:
    """Returns the figures of a finished training, by name.

    They are made from its `job.json` and the chief's journals.

    Times are seconds of the chief: `time_s` from the start to the end of each attempt;
    `checkpoints_s` and `evaluation_s` that training waited; `restarts_s` that attempts after the
    first took from their start to a step that none before had reached. `replicas` is the number of
    those that compute gradients. `examples_per_s` is of all of them in the last attempt, or None if
    it made too few steps. `machine_hours` are `time_s` for every process of the cluster, in hours.

    Args:
      job_dir: Directory of the job.
      record: Its result.

    Raises:
      UserError: If a file cannot be used.
      FileNotFoundError: If there is no such job directory.
      ConnectionError: If a store does not answer.
    """
    facts = identity.facts(job_dir)
    sums: collections.Counter[str] = collections.Counter()
    # An attempt is behind until it makes a step beyond `goal`, the last step of those before.
    is_behind, previous, reached, goal = False, 0.0, 0, 0
    for event in reversed([*journal.events(job_dir, "chief-0")]):  # The oldest comes first.
        kind, step, time = event["event"], event["step"], event["time"]
        if kind == "machine":  # The first event of an attempt.
            is_behind = previous > 0
            goal = reached
        else:
            sums["time"] += time - previous
            sums["restarts"] += is_behind and time - previous
        previous = time
        reached = max(reached, step)
        if kind == "step" and step > goal:
            is_behind = False
        elif kind == "checkpoint":
            sums["checkpoints"] += event["waited_s"]
        elif kind == "evaluation":
            sums["evaluation"] += event["seconds"]
    replicas = facts["replicas"]
    is_async = facts["settings"]["strategy"] == "asynchronous"
    return {
        "replicas": replicas.get("worker", 0) + (0 if is_async else replicas["chief"]),
        "time_s": sums["time"],
        "examples_per_s": record.examples_per_s or None,
        "checkpoints_s": sums["checkpoints"],
        "evaluation_s": sums["evaluation"],
        "restarts_s": sums["restarts"],
        "machine_hours": sums["time"] * sum(replicas.values()) / 3600,
    }
