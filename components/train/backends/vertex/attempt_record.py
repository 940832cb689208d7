"""A line of the record of a job's attempts (`job_store.RECORD`): begun when a job is submitted, completed when it has ended.

line = begun("training-1", cluster.choices[0], Again(choice=0, timeout_s=3600), step=-1)
attempt = completed(line, custom_job, step=500)    # an `Attempt`; the line is one of JSON
"""

import datetime
from typing import Any

from components.train.backends.vertex.attempts import Again, Attempt, ending, exit_code
from components.train.cluster.cluster_file import Cluster

_KNOWN = ("choice", "ending", "step_before", "step_after", "seconds", "replicas", "exit_code")


def begun(display_name: str, machines: Cluster, order: Again, step: int) -> dict[str, Any]:
    """Of a job that is about to be submitted, with the newest checkpoint's step (-1: none)."""
    return {
        "display_name": display_name,
        "submitted": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "choice": order.choice,
        "machines": {role: f"{pool.replicas} x {pool.shape}" for role, pool in machines.pools.items()},
        "replicas": machines.replicas,
        "timeout_s": order.timeout_s,
        "step_before": step,
    }


def completed(line: dict[str, Any], job: Any, step: int) -> Attempt:
    """Adds to its line how a job (a `CustomJob` message) has ended, with the step of the newest checkpoint by then."""
    ran = (job.end_time - job.start_time).total_seconds() if job.start_time and job.end_time else 0.0
    error = " ".join(job.error.message.split())
    line |= {"ending": ending(job.state.name, job.error.code, error), "error": error, "seconds": ran}
    line |= {"exit_code": exit_code(error), "step_after": step}
    made = Attempt(**{name: line[name] for name in _KNOWN})
    line["machine_hours"] = made.machine_hours
    return made
