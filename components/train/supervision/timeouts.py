"""How long the launcher waits for replicas, for what."""

from __future__ import annotations

import dataclasses

from components.train.supervision.health import Limits


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """How long replicas are waited for.

    Attributes:
      stop_s: From SIGTERM to SIGKILL when the job is told to stop or is preempted: replicas save.
      failure_s: The same when there is nothing to save: after a failure, or after the chief's success.
      hear_s: After a failure, from then to SIGTERM for those elsewhere, whose clients may tell late that they were killed.
      join_s: What workers of a synchronous job have to end by themselves after the chief's success.
      evaluator_s: The same for the evaluator, which may be at the last checkpoint.
      cleanup_s: What a replica's cleanup may take.
      look_s: Between looks at the replicas.
      limits: To judge whether a replica is frozen.
    """

    stop_s: float = 25.0
    failure_s: float = 1.0
    hear_s: float = 0.5
    join_s: float = 30.0
    evaluator_s: float = 300.0
    cleanup_s: float = 30.0
    look_s: float = 0.5
    limits: Limits = dataclasses.field(default_factory=Limits)
