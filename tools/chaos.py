"""`make chaos`: replicas of real jobs are killed, frozen and told to leave at random moments.

    python -m tools.chaos --trials 30 --seed 0 # MNIST if ../shared/data has it, else the digits
    python -m tools.chaos --trials 1 --seed 17 # one of them again

Every trial must end at the asked step with the accuracy of an undisturbed job, lose no step beyond
the last checkpoint, leave no process, and have records that tell what happened. Prints a row a
trial.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

from common.lifeline import OWNER_PID
from components.convert.options import Options
from components.train.supervision.launcher_log import last_run
from tests.programs import start_python
from tests.rides import convert_quietly
from tests.root import ROOT
from tests.train.train_fakes import Bench, wait_until
from trainer.job.journal import events, last

MNIST = ROOT.parent / "shared" / "data" / "mnist"
REPLICAS = {"sync": ("chief/0", "worker/0"), "ps": ("chief/0", "worker/0", "worker/1", "ps/0")}
SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)
# Of undisturbed asynchronous jobs the accuracies differ among each other; synchronous ones are
# equal.
NOISE = {"sync": 0.002, "ps": 0.03}
_LIMIT_S, _POLL_S = 240.0, 0.003


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blow:
    """A signal to a replica of a job."""

    victim: str
    number: signal.Signals
    when: float  # Share of the job's steps that are made; negative while the replica starts.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arena:
    """Runs jobs on one dataset."""

    base: pathlib.Path  # Of the jobs' directories.
    data_dir: pathlib.Path
    steps: int  # That every job is to make.

    def run(self, cluster, blows, name):
        """Runs a job that suffers blows one after the other, each when the one before is overcome.

        Returns the accuracy on the validation split, and who started again after each blow; fails
        if it did not bear them.
        """
        job = self.base / name
        words = f"-m components.train --cluster {cluster} --max-restarts 20 -- --batch-size 64"
        words += f" --data-dir {self.data_dir} --job-dir {job} --train-steps {self.steps}"
        words += " --checkpoint-num-steps=25"
        # It ends with this process, however that ends.
        env = {OWNER_PID: str(os.getpid())}
        with open(self.base / f"{name}.out", "wb") as output:
            launcher = start_python(*words.split(), stdout=output, env=env)
        try:
            restarted = [self._strike(job, launcher, blow) for blow in blows]
            code = launcher.wait(_LIMIT_S)
        finally:
            launcher.kill()
            launcher.wait()
        assert code == 0, f"exit code {code}"
        assert not (left := Bench(path=job).processes()), f"left behind: {left}"
        done = json.loads((job / "DONE.json").read_text())
        assert done["step"] == self.steps, f"ended at step {done['step']}"
        _check_records(job, [blow for blow, names in zip(blows, restarted, strict=True) if names])
        _check_steps(job)
        return done["validation"]["latest"]["accuracy"], restarted

    def _strike(self, job, launcher, blow):
        """Waits for the moment, strikes, and waits until the job has got over it or has ended."""

        def newest(kind, **values):
            found = {"event": kind, **values}.items()
            return next((e for e in reversed(last_run(str(job))) if found <= e.items()), {})

        def pid():
            return newest("up", replica=blow.victim).get("pid")

        def is_due():
            step = _step(job).get("step", -1)
            return bool(pid()) if blow.when < 0 else step >= blow.when * self.steps

        def is_overcome():
            return struck <= newest("restart").get("time", 0) < _step(job).get("time", 0)

        def wait(condition):
            wait_until(lambda: condition() or launcher.poll() is not None, _LIMIT_S, _POLL_S)

        wait(is_due)
        time.sleep(max(0.0, -blow.when))
        struck = time.time()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid(), blow.number)
        wait(is_overcome)
        restart = newest("restart")
        return tuple(restart["replicas"]) if restart.get("time", 0) >= struck else ()


def _check_records(job, blows):
    """The launcher's record tells of every blow that had all or one start again, and why."""
    record = last_run(str(job))
    assert (record[0]["event"], record[-1]["event"]) == ("start", "end"), "the record is torn"
    blames = [event for event in record if event["event"] == "blame"]
    for blow, blame in zip(blows, blames, strict=True):
        kind = "error" if blow.number == signal.SIGSTOP else "preemption"
        assert blame["kind"] == kind, f"{blow}: {blame['kind']}"
        # After SIGTERM all save at one step and leave; who is first does not matter.
        is_victim = blow.number == signal.SIGTERM or blame["replica"] == blow.victim
        assert is_victim, f"{blow}: {blame['replica']} was blamed"


def _check_steps(job):
    """Every start went on from the newest checkpoint before it, and no step is missing."""
    saved = 0
    for event in reversed([*events(job, "chief-0")]):
        if event["event"] in ("start", "resume"):
            # The file may have been complete when its writer died before it told.
            assert event["step"] >= saved, f"resumed at {event['step']} and not {saved}"
        elif event["event"] == "checkpoint":
            saved = max(saved, event["step"])


def _step(job):
    """The newest step in the chief's journal, or nothing."""
    with contextlib.suppress(FileNotFoundError):
        return last(str(job), "chief-0", "step")
    return {}


def arena(base, dataset):
    """Converts the dataset."""
    source = str(MNIST) if dataset == "mnist" else None
    convert_quietly(Options(dataset=dataset, source=source, output=str(base / "data")))
    return Arena(base=base, data_dir=base / "data", steps=1000 if source else 300)


def main():
    """Runs the trials, each with its signal at a random moment; returns how many failed."""
    parser = argparse.ArgumentParser(prog="tools.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="of the first trial")
    args = parser.parse_args()
    base = pathlib.Path(tempfile.mkdtemp(prefix="chaos-"))
    ring, failed = arena(base, "mnist" if MNIST.exists() else "digits"), 0
    files = {cluster: ROOT / "clusters" / f"local-{cluster}.yaml" for cluster in REPLICAS}
    calm = {cluster: ring.run(file, [], f"calm-{cluster}")[0] for cluster, file in files.items()}
    print(f"{ring.steps} steps, jobs in {base}; undisturbed accuracy: {calm}", flush=True)
    for trial in range(args.seed, args.seed + args.trials):
        draw = random.Random(trial)
        cluster = draw.choice([*REPLICAS])
        victim, number = draw.choice(REPLICAS[cluster]), draw.choice(SIGNALS)
        blow = Blow(victim=victim, number=number, when=draw.uniform(-3, 1))
        try:
            accuracy, [restarted] = ring.run(files[cluster], [blow], f"trial-{trial}")
            assert abs(accuracy - calm[cluster]) <= NOISE[cluster], f"accuracy {accuracy:.4f}"
            outcome = f"{accuracy:.4f}, started again: {', '.join(restarted) or 'nobody'}"
        except Exception as error:
            failed, outcome = failed + 1, f"FAILED: {error}"
        what = f"{cluster:<5}{number.name:<9}{victim:<10}{blow.when:>5.2f}"
        print(f"{trial:>5}  {what}  {outcome}", flush=True)
    print(f"{args.trials - failed} of {args.trials} trials went well")
    if not failed:
        shutil.rmtree(base)
    return failed


if __name__ == "__main__":
    sys.exit(main() > 0)
