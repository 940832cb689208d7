"""How long the launcher waits for replicas, for what."""

import dataclasses
from collections.abc import Mapping

# The longest that a phase of ours goes without a word, with room to spare: a first call compiles, reading checks the
# whole dataset, and replicas wait for each other (--start-timeout-s, 600 s) and then name the missing themselves.
# A server or worker beats by itself, so its silence says that its process does not run at all; one whose TensorFlow hangs
# is noticed by the chief's silence. Phases that are not here (the end, those of other programs) may be silent for ever.
SILENCE_S = {
    "starting": 900.0,
    "serving": 60.0,
    "training": 300.0,
    "saving": 600.0,
    "evaluating": 1800.0,
    "exporting": 600.0,
    "waiting": 120.0,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patience:
    """How long replicas are waited for."""

    start_s: float = 300.0  # From the start to the first status; an import of TensorFlow has been seen to take 43 s.
    silence_s: Mapping[str, float] = dataclasses.field(default_factory=SILENCE_S.copy)  # Between statuses, by phase.
    stopped_s: float = 5.0  # That a process may be stopped (SIGSTOP).
    # From SIGTERM to SIGKILL when the job is told to stop or is preempted, in which replicas save. A Spot VM is switched
    # off 30 s after its notice at the latest.
    grace_period_s: float = 25.0
    failure_s: float = 1.0  # The same when there is nothing to save: after a failure, or after the chief's success.
    hear_s: float = 0.5  # After a failure, to SIGTERM for the others: a client may tell late of a kill elsewhere.
    join_s: float = 30.0  # What workers of a synchronous job have to end by themselves after the chief's success.
    evaluator_s: float = 300.0  # The same for the evaluator, which may be at the last checkpoint.
    look_s: float = 0.5  # Between looks at the replicas.
