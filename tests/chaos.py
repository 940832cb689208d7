"""`make chaos`: replicas of real jobs are killed, frozen and told to leave at random moments.

    python -m tests.chaos --trials 30 --seed 0 # MNIST if ../shared/data has it, else the digits
    python -m tests.chaos --trials 1 --seed 17 # one of them again

Every trial must end at the asked step with the accuracy of an undisturbed job, lose no step beyond the last checkpoint,
leave no process, and have records that tell what happened. Prints a row a trial and the times of recovery: from the
signal to the first step after it.
"""

import argparse
import contextlib
import dataclasses
import io
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from components.convert.convert import convert
from components.convert.options import Options
from components.train.supervision.launcher_log import last_run
from tests.train.train_fakes import Bench, wait_until
from trainer.base.lifeline import OWNER_PID
from trainer.job_dir.journal import events

ROOT = pathlib.Path(__file__).parents[1]
MNIST = ROOT.parent / "shared" / "data" / "mnist"
CLUSTERS = {"sync": ("chief/0", "worker/0"), "ps": ("chief/0", "worker/0", "worker/1", "ps/0")}
SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)
MOMENTS = ("start", "training", "training", "saving", "end")
# Of undisturbed asynchronous jobs the accuracies differ among each other; synchronous ones are equal.
NOISE = {"sync": 0.002, "ps": 0.03}
_LIMIT_S, _POLL_S = 240.0, 0.003


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blow:
    """What is done to a job."""

    victim: str
    number: signal.Signals
    moment: str  # One of `MOMENTS`; `end` is when the last step is being made or has been.
    when: float  # From 0 to 1, where in that moment.

    def __str__(self) -> str:
        return f"{self.number.name} to {self.victim} at {self.moment}"


@dataclasses.dataclass(kw_only=True)
class Outcome:
    """What came of one blow."""

    step: int  # Of the chief when it fell; -1 before training.
    restarted: tuple[str, ...] = ()
    recovered_s: float | None = None  # Until the first step after it; None if there was none to make.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arena:
    """Runs jobs on one dataset."""

    base: pathlib.Path  # Of the jobs' directories.
    data_dir: pathlib.Path
    steps: int  # That every job is to make.
    every: int  # Steps between checkpoints.

    def run(self, cluster: pathlib.Path, blows: Sequence[Blow], name: str) -> tuple[float, list[Outcome]]:
        """Runs a job that suffers blows one after the other, each when the one before is overcome.

        Returns the accuracy on the validation split, and what came of each blow; fails if it did not bear them.
        """
        job = self.base / name
        command = [
            *(sys.executable, "-m", "components.train", "--cluster", cluster),
            *("--max-restarts", "20", "--", "--data-dir", self.data_dir, "--job-dir", job),
            *("--train-steps", self.steps, "--checkpoint-num-steps", self.every, "--batch-size", 64),
        ]
        with open(self.base / f"{name}.out", "wb") as output:
            launcher = subprocess.Popen(
                list(map(str, command)),
                cwd=ROOT,
                stdout=output,
                stderr=output,
                env={**os.environ, OWNER_PID: str(os.getpid())},  # It ends with this process, however that ends.
            )
            try:
                outcomes = [self._strike(job, launcher, blow) for blow in blows]
                code = launcher.wait(_LIMIT_S)
            finally:
                launcher.kill()
                launcher.wait()
        assert code == 0, f"exit code {code}"
        assert not (left := Bench(path=job).processes()), f"left behind: {left}"
        done = json.loads((job / "DONE.json").read_text())
        assert done["step"] == self.steps, f"ended at step {done['step']}"
        _check_records(job, blows, outcomes)
        _check_steps(job)
        return done["validation"]["latest"]["accuracy"], outcomes

    def _strike(self, job: pathlib.Path, launcher: subprocess.Popen, blow: Blow) -> Outcome:
        """Waits for the moment, strikes, and waits until the job has got over it or has ended."""
        self._wait_for(job, launcher, blow)
        ups = [event for event in last_run(str(job)) if event["event"] == "up" and event["replica"] == blow.victim]
        outcome, struck = Outcome(step=_step(job)), time.time()
        with contextlib.suppress(ProcessLookupError):
            os.kill(ups[-1]["pid"], blow.number)

        def overcome() -> bool:
            restarts = [e for e in last_run(str(job)) if e["event"] == "restart" and e["time"] >= struck]
            if not restarts:
                return False
            outcome.restarted = tuple(restarts[-1]["replicas"])
            since = restarts[-1]["time"] if "chief/0" in outcome.restarted else struck
            told = events(job, "chief-0")
            if steps := [e["time"] for e in told if e["event"] == "step" and e["time"] > since]:
                outcome.recovered_s = min(steps) - struck
            return bool(steps)

        wait_until(lambda: overcome() or launcher.poll() is not None, _LIMIT_S, _POLL_S)
        overcome()
        return outcome

    def _wait_for(self, job: pathlib.Path, launcher: subprocess.Popen, blow: Blow) -> None:
        def reached() -> bool:
            match blow.moment:
                case "start":
                    return any(e["event"] == "up" and e["replica"] == blow.victim for e in last_run(str(job)))
                case "training":
                    return _step(job) >= 1 + blow.when * 0.8 * self.steps
                case "saving":
                    return _step(job) >= blow.when * 0.6 * self.steps and _status(job).get("phase") == "saving"
                case _:
                    return _step(job) >= self.steps - 1

        wait_until(lambda: reached() or launcher.poll() is not None, _LIMIT_S, _POLL_S)
        if blow.moment in ("start", "end"):
            time.sleep(blow.when * (4.0 if blow.moment == "start" else 0.5))


def _check_records(job: pathlib.Path, blows: Sequence[Blow], outcomes: Sequence[Outcome]) -> None:
    """The launcher's record tells of every blow that had all or one start again, and why."""
    record = last_run(str(job))
    assert (record[0]["event"], record[-1]["event"]) == ("start", "end"), "the record has no beginning or end"
    blames = [event for event in record if event["event"] == "blame"]
    answered = [blow for blow, outcome in zip(blows, outcomes, strict=True) if outcome.restarted]
    assert len(blames) == len(answered), f"{len(blames)} blames for {len(answered)} blows"
    for blow, blame in zip(answered, blames, strict=True):
        kind = "error" if blow.number == signal.SIGSTOP else "preemption"
        assert blame["kind"] == kind, f"{blow}: {blame['kind']}"
        if blow.number == signal.SIGTERM:  # All save at one step and leave; who is first does not matter.
            assert blame["ending"] in ("exit code 143", "SIGTERM"), f"{blow}: {blame['ending']}"
        else:
            assert blame["replica"] == blow.victim, f"{blow}: {blame['replica']} was blamed"


def _check_steps(job: pathlib.Path) -> None:
    """Every start went on from the newest checkpoint before it, and at the end no step is missing."""
    saved = 0
    for event in reversed([*events(job, "chief-0")]):
        if event["event"] in ("start", "resume"):
            # The file may have been complete when its writer died before it told.
            assert event["step"] >= saved, f"resumed at {event['step']} with a checkpoint at {saved}"
        elif event["event"] == "checkpoint":
            saved = max(saved, event["step"])


def _status(job: pathlib.Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return json.loads((job / "replicas" / "chief-0.status.json").read_text())
    return {}


def _step(job: pathlib.Path) -> int:
    status = _status(job)
    return status["step"] if status.get("phase") not in (None, "starting") else -1


def _file(cluster: str) -> pathlib.Path:
    return ROOT / "clusters" / f"local-{cluster}.yaml"


def blows(seed: int) -> Iterator[tuple[str, Blow]]:
    """Cluster and blow of each trial, without end: every cluster, role and signal in turn, at random moments."""
    order = [(c, v, n) for c, victims in CLUSTERS.items() for v in victims for n in SIGNALS]
    for trial in itertools.count(seed):
        generator = random.Random(trial)
        cluster, victim, number = order[trial * 7 % len(order)]
        yield cluster, Blow(victim=victim, number=number, moment=generator.choice(MOMENTS), when=generator.random())


def arena(base: pathlib.Path, dataset: str) -> Arena:
    """Converts the dataset."""
    data_dir = base / "data"
    with contextlib.redirect_stdout(io.StringIO()):
        convert(Options(dataset=dataset, source=str(MNIST) if dataset == "mnist" else None, output=str(data_dir)))
    return Arena(base=base, data_dir=data_dir, steps=1000 if dataset == "mnist" else 300, every=25)


def main() -> int:
    """Runs the trials; returns how many failed."""
    p = argparse.ArgumentParser(prog="tests.chaos", description=__doc__.splitlines()[0])
    p.add_argument("--trials", type=int, default=30)
    p.add_argument("--seed", type=int, default=0, help="of the first trial; the next ones count up")
    args = p.parse_args()
    base = pathlib.Path(tempfile.mkdtemp(prefix="chaos-"))
    dataset = "mnist" if MNIST.exists() else "digits"
    times: dict[str, list[float]] = {}
    failed = 0
    ring = arena(base, dataset)
    calm = {cluster: ring.run(_file(cluster), [], f"calm-{cluster}")[0] for cluster in CLUSTERS}
    print(f"{dataset}, {ring.steps} steps, jobs in {base}; undisturbed accuracy: {calm}", flush=True)
    print(f"{'trial':>5}  {'job':<5}{'signal':<9}{'to':<10}{'at':<10}{'step':>5}  {'again':<7}{'after s':>8}  accuracy")
    for trial, (cluster, blow) in zip(range(args.seed, args.seed + args.trials), blows(args.seed), strict=False):
        row = f"{trial:>5}  {cluster:<5}{blow.number.name:<9}{blow.victim:<10}{blow.moment:<10}"
        try:
            accuracy, (outcome,) = ring.run(_file(cluster), [blow], f"trial-{trial}")
            assert abs(accuracy - calm[cluster]) <= NOISE[cluster], f"accuracy {accuracy:.4f}"
        except Exception as error:
            failed += 1
            print(f"{row}FAILED: {error}", flush=True)
            continue
        again = "all" if len(outcome.restarted) > 1 else "one" if outcome.restarted else "-"
        after = f"{outcome.recovered_s:.1f}" if outcome.recovered_s is not None else "-"
        print(f"{row}{outcome.step:>5}  {again:<7}{after:>8}  {accuracy:.4f}", flush=True)
        if outcome.recovered_s is not None:
            times.setdefault(f"{cluster} {again} {blow.number.name}", []).append(outcome.recovered_s)
        shutil.rmtree(base / f"trial-{trial}")
    for what, seconds in sorted(times.items()):
        print(f"  {what:<22} {statistics.median(seconds):5.1f} s  ({len(seconds)})")
    everything = [second for seconds in times.values() for second in seconds]
    if everything:
        print(f"recovered after {statistics.median(everything):.1f} s (median of {len(everything)})")
    print(f"{args.trials - failed} of {args.trials} trials went well")
    if not failed:
        shutil.rmtree(base)
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
