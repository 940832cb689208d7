"""Real training: real processes, real checkpoints, real kills."""

import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from trainer_jobs import CLUSTERS, ROOT, Job, kill_at_random

pytestmark = pytest.mark.cluster
STEPS, EVERY = 200, 20
# Evaluations between checkpoints: calls must not have other lengths for them.
EXACT = [
    "--deterministic",
    "--train-steps",
    STEPS,
    "--checkpoint-num-steps",
    EVERY,
    "--eval-every-steps",
    50,
]
# At higher rates, and with Adam, 200 steps make a difference of 1e-2 out of rounding, as another
# number of threads on one device does.
SMOOTH = ["--optimizer", "sgd", "--learning-rate", 0.001]
# All that has a state of its own, or its own way through a step.
STATEFUL = ["--precision", "bfloat16", "--optimizer", "adamw", "--clip-norm", 0.05]
STATEFUL += ["--batch-size", 16]  # small: without instructions for it bfloat16 is slow
SYNCHRONOUS = list(CLUSTERS)[:3]


def steps_of(events: list[dict], event: str) -> list[int]:
    """Returns the steps of the events of a kind."""
    return [e["step"] for e in events if e["event"] == event]


def record_of(job: Job) -> dict:
    return json.loads((job.directory / "DONE.json").read_text())


@pytest.fixture(scope="module")
def straight(digits, tmp_path_factory) -> Callable[..., Job]:
    """Returns jobs that nothing has disturbed, each run once."""
    jobs: dict[tuple, Job] = {}

    def run(how: str, *flags: object) -> Job:
        if (how, flags) not in jobs:
            jobs[how, flags] = Job(digits, tmp_path_factory.mktemp("straight") / how)
            roles, more = CLUSTERS[how]
            jobs[how, flags].run(*roles, flags=[*EXACT, *more, *flags])
        return jobs[how, flags]

    return run


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("how", "more"),
    [*((how, []) for how in SYNCHRONOUS), ("two_workers", STATEFUL)],
    ids=[*SYNCHRONOUS, "stateful"],
)
def test_killed_job_resumes_to_same_bits(make, straight, how, more, seed):
    """The split is in memory before the kill, and in mapped files after it."""
    killed, (roles, flags) = make(), CLUSTERS[how]
    flags = [*EXACT, *flags, *more]
    victims = (None, "chief-0", f"{roles[-1]}-0")  # all at once, or one
    killed.start(*roles, flags=flags)
    died_at = kill_at_random(
        killed, seed, between=(2 * EVERY + 1, STEPS - EVERY), victim=victims[seed]
    )
    assert set(killed.wait().values()) <= {-9, 1}
    newest = killed.checkpoints()[-1]
    killed.run(*roles, flags=[*flags, "--reader", "mapped"])
    _, second = killed.attempts()
    assert steps_of(second, "resume") == [newest]
    assert newest > 0
    # One interval, and another one if the last checkpoint was still being written.
    assert died_at - newest <= 2 * EVERY
    assert steps_of(second, "step")[-1] == STEPS
    assert sum(e["steps"] for e in second if e["event"] == "done") == STEPS - newest
    assert killed.digest(STEPS) == straight(how, *more).digest(STEPS)


@pytest.mark.parametrize("then", [["chief"], ["chief", "worker", "worker"]], ids=["one", "three"])
def test_job_resumes_with_other_replicas(make, straight, then):
    elastic, undisturbed = make(), straight("two_workers", *SMOOTH)
    shutil.copytree(undisturbed.directory, elastic.directory)
    (elastic.directory / "DONE.json").unlink()
    for file in (elastic.directory / "checkpoints").glob(f"ckpt-{STEPS}.*"):
        file.unlink()
    elastic.run(*then, flags=[*EXACT, *SMOOTH])
    assert steps_of(elastic.events(), "resume") == [STEPS - EVERY]
    actual = elastic.variables(STEPS)
    for name, value in undisturbed.variables(STEPS).items():
        np.testing.assert_allclose(actual[name], value, rtol=0, atol=1e-5, err_msg=name)


def test_changed_global_batch_is_refused(make):
    multiplied = make()
    flags = ["--train-batch-size", 16, "--train-steps", 4]
    multiplied.run("chief", flags=flags)
    multiplied.start("chief", flags=[*flags, "--strategy", "mirrored", "--train-steps", 8])
    assert multiplied.wait() == {"chief-0": 2}
    assert (
        "--per-replica-batch-size 16 on 2 replicas makes 32 examples a step" in multiplied.output()
    )


@pytest.mark.smoke
def test_sigterm_to_replica_saves_one_step(make, straight):
    stopped = make()
    stopped.start("chief", "worker", flags=EXACT)
    stopped.until_step(EVERY)
    stopped.terminate("worker-0")
    assert stopped.wait(10) == {"chief-0": 143, "worker-0": 143}
    (step,) = {
        *steps_of(stopped.events(), "preempted"),
        *steps_of(stopped.events("worker-0"), "preempted"),
    }
    assert step == stopped.checkpoints()[-1]
    assert f"saved at step {step}" in stopped.output()
    stopped.run("chief", "worker", flags=EXACT)
    assert stopped.digest(STEPS) == straight("two_workers").digest(STEPS)


def test_lost_replica_is_one_line(make):
    lost = make()
    lost.start("chief", "worker", "worker", flags=["--train-steps", 100_000])
    lost.until_step(10)
    lost.kill("worker-1")
    assert lost.wait() == {"chief-0": 1, "worker-0": 1, "worker-1": -9}
    for survivor in ("chief-0", "worker-0"):
        lines = lost.log(survivor).read_text().splitlines()
        (error,) = [
            line
            for line in lines
            if not re.match(r"step |cnn on |reader: |chief-0 computes in ", line)
        ]
        assert re.fullmatch(
            rf"error: {survivor} cannot go on without .*worker-1.*; the same command resumes.*",
            error,
        )


def test_evaluator_scores_last_checkpoint(make):
    evaluated = make()
    flags = [*EXACT, "--export", "best"]
    evaluated.run("chief", "worker", "evaluator", flags=flags)
    assert not steps_of(evaluated.events(), "evaluation")
    scored = [e for e in evaluated.events("evaluator-0") if e["event"] == "evaluation"]
    assert all(e["step"] % EVERY == 0 for e in scored)
    best = max(scored, key=lambda e: (e["accuracy"], -e["loss"]))["step"]
    record = record_of(evaluated)
    assert record["validation"]["latest"]["step"] == scored[-1]["step"] == STEPS
    assert record["validation"]["best"]["step"] == record["exported_step"] == best
    assert [e["exported_step"] for e in evaluated.events() if e["event"] == "export"] == [best]
    points = scalars(evaluated.directory / "logs" / "validation")
    assert points["accuracy"][STEPS] == pytest.approx(scored[-1]["accuracy"])
    # With more steps, it does not take the end of the first job for that of the second.
    evaluated.run("chief", "worker", "evaluator", flags=[*flags, "--train-steps", STEPS + EVERY])
    assert steps_of(evaluated.events("evaluator-0"), "evaluation")[-1] == STEPS + EVERY


def scalars(directory: pathlib.Path) -> dict[str, dict[int, float]]:
    """Returns values by name and step, as TensorBoard's own reader has them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(directory), size_guidance={"tensors": 0}).Reload()
    names = events.Tags()["tensors"]
    return {
        name: {e.step: float(make_ndarray(e.tensor_proto)) for e in events.Tensors(name)}
        for name in names
    }


def test_reports_agree_with_journal(make):
    """The console, TensorBoard and a study report what the journal has."""
    alone = make()
    study = alone.directory.parent / "hypertune" / "output.metrics"
    alone.environ = {"CLOUD_ML_HP_METRIC_FILE": str(study), "CLOUD_ML_TRIAL_ID": "7"}
    flags = [
        "--train-steps",
        900,
        "--eval-every-steps",
        150,
        "--schedule",
        "linear",
        "--learning-rate",
        0.002,
    ]
    output = alone.run(
        "chief", flags=[*flags, "--checkpoint-secs", 0.5, "--checkpoint-num-steps", 400]
    )
    assert re.search(r"step 900/900 +loss \d\.\d+ +accuracy \d\.\d+ +[\d]+ examples/s", output)
    assert len(re.findall(r"step \d+  validation loss \d\.\d+  accuracy \d\.\d+", output)) == 6
    windows = {e["step"]: e for e in alone.events() if e["event"] == "step"}
    evaluations = {e["step"]: e for e in alone.events() if e["event"] == "evaluation"}
    assert [*evaluations] == [150, 300, 450, 600, 750, 900]
    assert evaluations[900]["accuracy"] > 0.9
    saves = set(steps_of(alone.events(), "checkpoint"))
    assert saves > {400, 800, 900}, "none by time"

    train, validation = (
        scalars(alone.directory / "logs" / part) for part in ("train", "validation")
    )
    for name in ("loss", "accuracy", "examples_per_s"):
        assert train[name] == pytest.approx(
            {step: e[name] for step, e in windows.items()}, rel=1e-5
        )
    # After the step: what the next one would take.
    assert train["learning_rate"] == pytest.approx(
        {step: 0.002 * (1 - step / 900) for step in windows}, abs=1e-8
    )
    reports = [json.loads(line) for line in study.read_text().splitlines()]
    assert {report["trial"] for report in reports} == {"7"}
    for name in ("loss", "accuracy"):
        expected = {step: e[name] for step, e in evaluations.items()}
        assert validation[name] == pytest.approx(expected, rel=1e-5)
        assert {int(r["global_step"]): float(r[name]) for r in reports if name in r} == expected


def test_parameter_servers_count_steps_over_resume(make):
    asynchronous, roles = make(), ["chief", "worker", "worker", "ps"]
    # More steps than it will do at first, and saved by time alone.
    by_time = ["--train-steps", 100_000, "--checkpoint-num-steps", 0, "--checkpoint-secs", 0.5]
    asynchronous.start(*roles, flags=by_time)
    asynchronous.until(lambda: len(steps_of(asynchronous.events(), "checkpoint")) >= 3)
    saves = [e["time"] for e in asynchronous.events() if e["event"] == "checkpoint"]
    assert max(b - a for a, b in itertools.pairwise(saves)) < 20
    asynchronous.terminate("ps-0")
    codes = asynchronous.wait_for("chief-0", "ps-0")
    assert codes == {"chief-0": 143, "ps-0": 143}, asynchronous.output()
    asynchronous.close()
    (stopped_at,) = steps_of(asynchronous.events(), "preempted")
    last = stopped_at + 200
    output = asynchronous.run(*roles, flags=["--train-steps", last, "--checkpoint-num-steps", 100])
    assert f"from step {stopped_at} to {last}" in output
    # Our own step, and the optimizer's counter, its first variable.
    variables = asynchronous.variables(last)
    counters = [
        int(v) for n, v in variables.items() if n.startswith(("step/", "variables/optimizer.S000/"))
    ]
    assert counters == [last, last]
    record = record_of(asynchronous)
    assert record["step"] == last
    assert record["accuracy"] > 0.9


def test_sync_ignores_parameter_servers(make, straight):
    synchronous = make()
    synchronous.start(
        "chief", "worker", "ps", flags=[*EXACT, "--sync", "--strategy", "parameter_server"]
    )
    assert synchronous.wait() == {"chief-0": 0, "worker-0": 0, "ps-0": 0}
    assert "--sync needs no parameter servers" in synchronous.output()
    assert synchronous.digest(STEPS) == straight("two_workers").digest(STEPS)


@pytest.fixture
def finished(straight, tmp_path, digits) -> Job:
    """Returns a copy of a finished job."""
    shutil.copytree(straight("one_device").directory, tmp_path / "finished")
    return Job(digits, tmp_path / "finished")


def test_missing_model_is_exported_again(finished):
    before = record_of(finished)
    shutil.rmtree(finished.directory / "model")
    assert "its model is gone and is exported again" in finished.run("chief", flags=EXACT)
    assert (finished.directory / "model" / "saved_model.pb").exists()
    assert not {e["event"] for e in finished.events()} & {"step", "evaluation"}
    again = record_of(finished)
    assert all(again[name] == before[name] for name in ("step", "epochs", "validation"))
    assert 0 < again["loss"] < 1 and 0.5 < again["accuracy"] <= 1 and again["examples_per_s"] > 0


def test_finished_job_without_checkpoints_is_error(finished):
    for name in ("model", "checkpoints"):
        shutil.rmtree(finished.directory / name)
    finished.start("chief", flags=EXACT)
    assert finished.wait() == {"chief-0": 2}
    assert "its checkpoints are gone; put them back" in finished.output()


def test_full_disk_keeps_checkpoint_before(finished):
    import resource

    # As far as a process can make one: no file may grow beyond this.
    limit = (200_000, resource.RLIM_INFINITY)
    flags = [*EXACT, "--train-steps", STEPS + EVERY]
    command = [
        sys.executable,
        "-m",
        "trainer.task",
        "--data-dir",
        finished.data,
        "--job-dir",
        finished.directory,
    ]
    full = subprocess.run(
        [*command, *map(str, flags)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert full.returncode == 1
    assert full.stderr.startswith(f"error: checkpoint {STEPS + EVERY} could not be saved: ")
    assert full.stderr.count("\n") == 1
    assert finished.checkpoints()[-1] == STEPS
    assert not list((finished.directory / "checkpoints").glob(f"ckpt-{STEPS + EVERY}*"))
    assert "from step 200 to 220" in finished.run("chief", flags=flags)
