"""Figures of a finished training, from the files of its job directory."""

import collections
import math
from typing import Any

from trainer.job import done, identity, journal


def measured(job_dir: str) -> dict[str, Any]:
    """Returns the figures of a finished training, by name.

    Times are seconds of the chief: `time_s` from the start to the end of each attempt;
    `checkpoints_s` and `evaluation_s` that training waited; `restarts_s` for the start of all
    attempts but the first, and for steps that were made again. `replicas` compute gradients.
    `examples_per_s` is of all of them in the last attempt, or None if it made too few steps.
    `machine_hours` are `time_s` for every process of the cluster.

    Raises:
      UserError: If a file cannot be used.
      ConnectionError: If a store does not answer.
    """
    record, facts = done.load(job_dir), identity.facts(job_dir)
    sums: collections.Counter[str] = collections.Counter()
    starts: list[float] = []
    first_step, ended, trained = math.inf, 0.0, 0.0
    for event in journal.events(job_dir, "chief-0"):  # The newest comes first.
        kind, time = event["event"], event["time"]
        ended = ended or time
        if kind == "step":
            trained = time
            # An attempt that ended without saving has made steps after the checkpoint.
            sums["lost"] += event["seconds"] if event["step"] > first_step else 0
        elif kind in ("start", "resume"):
            first_step = min(first_step, event["step"])
        elif kind == "machine":  # The first event of an attempt.
            sums["time"] += ended - time
            starts.append((trained or ended) - time)
            ended = trained = 0.0
        elif kind in ("checkpoint", "evaluation"):
            sums[kind] += event["waited_s" if kind == "checkpoint" else "seconds"]
            sums["checkpoints"] += kind == "checkpoint"
    replicas = facts["replicas"]
    is_async = facts["settings"]["strategy"] == "asynchronous"
    return {
        "replicas": replicas.get("worker", 0) + (0 if is_async else replicas["chief"]),
        "time_s": sums["time"],
        "examples_per_s": record and (record.examples_per_s or None),
        "checkpoints": sums["checkpoints"],
        "checkpoints_s": sums["checkpoint"],
        "evaluation_s": sums["evaluation"],
        "restarts": len(starts) - 1,
        "restarts_s": sums["lost"] + sum(starts[:-1]),
        "machine_hours": sums["time"] * sum(replicas.values()) / 3600,
    }
