"""What one finished job of a study came to: every figure from its journals, `DONE.json` and `evaluation.json`."""

import collections
import itertools
import pathlib
from typing import Any

from components.evaluate.page.attempts import Job
from components.evaluate.page.timeline import lives
from trainer.base.files import read_json
from trainer.job_dir import done, identity, interval, journal

EVALUATION = "evaluation"
# Kinds of the time line by what they are called here; all that a failure costs is `restarts`.
_CALLED = {"stayed": "steps", "first": "start", "again": "restarts", "wait": "waiting"}
WENT_TO = ("start", "steps", "checkpoint", "evaluation", "restarts", "waiting", "export")


def measured(job_dir: str, directory: pathlib.Path) -> dict[str, Any] | None:
    """The figures by name, None for what there is none of; None if it is not done, or not evaluated in `directory`.

    `time_s` is from the first replica's beginning to the last one's end, without pauses of the whole job; what it went to
    is the mean of the replicas, an evaluator left out. `examples_per_s` is of the attempt that finished. `machine_hours`
    are so many if every replica has a machine that long.
    """
    evaluation = read_json(directory / EVALUATION / "evaluation.json")
    if not (evaluation and (record := done.load(job_dir))):
        return None
    job, facts = Job.load(job_dir), identity.facts(job_dir)
    attempts = [attempt for each in job.replicas.values() for attempt in each]
    saved = [event for attempt in job.replicas["chief-0"] for event in attempt.all("checkpoint")]
    told = journal.last(job_dir, "chief-0", "step")
    replicas = round(told["examples_per_s"] / (told["replica_examples_per_s"] or 1)) or 1
    if asynchronous := facts["settings"]["strategy"] == "asynchronous":  # its chief counts itself alone
        replicas = facts["replicas"]["worker"]
    speed, time_s = record.examples_per_s or None, job.clock(max(attempt.ended for attempt in attempts))
    found = {
        "processes": len(job.replicas),
        "replicas": replicas,
        "vital": interval.vital(facts["replicas"], asynchronous=asynchronous),
        "steps": record.step,
        "time_s": time_s,
        "examples_per_s": speed,
        "examples_per_s_of_each": speed and speed / replicas,
        "metric": evaluation["metric"],
        "score": evaluation["metrics"][evaluation["metric"]],
        **{f"{kind}_s": seconds for kind, seconds in _went_to(job).items()},
        "machine_hours": len(job.replicas) * time_s / 3600,
        "restarts": len(attempts) - len(job.replicas),
        "checkpoints": len(saved),
        # What training waited for each, and what the thread that wrote it computed.
        "checkpoint_cost_s": sum(e["waited_s"] + e["cpu_s"] for e in saved) / len(saved) if saved else None,
        "computes_on": ", ".join(sorted({e["devices"] for a in attempts for e in a.all("machine")})),
    }
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}


def _went_to(job: Job) -> dict[str, float]:
    seconds: collections.Counter[str] = collections.Counter(dict.fromkeys(WENT_TO, 0.0))
    found = {name: spans for name, spans in lives(job).items() if not name.startswith("evaluator")}
    for name, spans in found.items():
        attempts = job.replicas[name]
        pauses = (job.clock(b.began) - job.clock(a.ended) for a, b in itertools.pairwise(attempts))
        seconds["restarts"] += sum(pauses)
        for span in spans:
            kind = _CALLED.get(span.kind, span.kind)
            again = kind == "start" and span.start >= attempts[0].ended
            seconds["restarts" if again else kind] += span.end - span.start
    return {kind: each / len(found) for kind, each in seconds.items()}
