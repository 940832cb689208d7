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
EXACT = ["--deterministic", "--train-steps", STEPS, "--checkpoint-num-steps", EVERY, "--eval-every-steps", 50]
# At higher rates, and with Adam, 200 steps make a difference of 1e-2 out of rounding, as another number of threads on one
# device does.
SMOOTH = ["--optimizer", "sgd", "--learning-rate", 0.001]
# All that has a state of its own, or its own way through a step.
STATEFUL = ["--precision", "bfloat16", "--optimizer", "adamw", "--clip-norm", 0.05]
STATEFUL += ["--batch-size", 16]  # small: without instructions for it bfloat16 is slow
SYNCHRONOUS = list(CLUSTERS)[:3]


@pytest.fixture(scope="module")
def straight(digits, tmp_path_factory) -> Callable[..., Job]:
    """Jobs that nothing has disturbed, each run once."""
    jobs: dict[tuple, Job] = {}

    def run(how: str, *flags: object) -> Job:
        if (how, flags) not in jobs:
            jobs[how, flags] = Job(digits, tmp_path_factory.mktemp("straight") / how)
            roles, more = CLUSTERS[how]
            jobs[how, flags].run(*roles, flags=[*EXACT, *more, *flags])
        return jobs[how, flags]

    return run


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("how", "more"), [*((how, []) for how in SYNCHRONOUS), ("two_workers", STATEFUL)], ids=[*SYNCHRONOUS, "stateful"]
)
def test_a_job_killed_at_a_random_step_and_resumed_has_the_bits_of_a_straight_one(make, straight, how, more, seed):
    killed, (roles, flags) = make(), CLUSTERS[how]
    flags = [*EXACT, *flags, *more]
    victims = (None, "chief-0", f"{roles[-1]}-0")  # all at once, or one
    killed.start(*roles, flags=flags)
    died_at = kill_at_random(killed, seed, between=(2 * EVERY + 1, STEPS - EVERY), victim=victims[seed])
    assert set(killed.wait().values()) <= {-9, 1}
    newest = killed.checkpoints()[-1]
    killed.run(*roles, flags=flags)
    _, second = killed.attempts()
    assert [e["step"] for e in second if e["event"] == "resume"] == [newest]
    assert newest > 0
    # One interval, and another one if the last checkpoint was still being written.
    assert died_at - newest <= 2 * EVERY
    assert [e["step"] for e in second if e["event"] == "step"][-1] == STEPS
    assert sum(e["steps"] for e in second if e["event"] == "done") == STEPS - newest
    assert killed.digest(STEPS) == straight(how, *more).digest(STEPS)


@pytest.mark.parametrize("then", [["chief"], ["chief", "worker", "worker"]], ids=["one", "three"])
def test_a_job_of_two_workers_goes_on_with_another_number(make, straight, then):
    elastic, undisturbed = make(), straight("two_workers", *SMOOTH)
    shutil.copytree(undisturbed.directory, elastic.directory)
    (elastic.directory / "DONE.json").unlink()
    for file in (elastic.directory / "checkpoints").glob(f"ckpt-{STEPS}.*"):
        file.unlink()
    elastic.run(*then, flags=[*EXACT, *SMOOTH])
    assert [e["step"] for e in elastic.events() if e["event"] == "resume"] == [STEPS - EVERY]
    expected, found = undisturbed.variables(STEPS), elastic.variables(STEPS)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5, err_msg=name)


def test_a_batch_that_another_number_of_replicas_would_change_is_refused(make):
    multiplied = make()
    flags = ["--train-batch-size", 16, "--train-steps", 4]
    multiplied.run("chief", flags=flags)
    multiplied.start("chief", flags=[*flags, "--strategy", "mirrored", "--train-steps", 8])
    assert multiplied.wait() == {"chief-0": 2}
    assert "--per-replica-batch-size 16 on 2 replicas makes 32 examples a step" in multiplied.output()


@pytest.mark.smoke
def test_sigterm_to_one_synchronous_replica_saves_at_one_step_and_the_resume_is_exact(make, straight):
    stopped = make()
    stopped.start("chief", "worker", flags=EXACT)
    stopped.until_step(EVERY)
    stopped.terminate("worker-0")
    assert stopped.wait(10) == {"chief-0": 143, "worker-0": 143}
    at = {e["step"] for name in ("chief-0", "worker-0") for e in stopped.events(name) if e["event"] == "preempted"}
    assert at == {stopped.checkpoints()[-1]}
    assert f"saved at step {at.pop()}" in stopped.output()
    stopped.run("chief", "worker", flags=EXACT)
    assert stopped.digest(STEPS) == straight("two_workers").digest(STEPS)


def test_the_end_of_another_replica_is_told_in_one_line(make):
    lost = make()
    lost.start("chief", "worker", "worker", flags=["--train-steps", 100_000])
    lost.until_step(10)
    lost.kill("worker-1")
    assert lost.wait() == {"chief-0": 1, "worker-0": 1, "worker-1": -9}
    for survivor in ("chief-0", "worker-0"):
        lines = lost.log(survivor).read_text().splitlines()
        lines = [line for line in lines if not re.match(r"step |cnn on |reader: |chief-0 computes in ", line)]
        assert len(lines) == 1, lines
        told = rf"error: {survivor} cannot go on without .*worker-1.*; the same command resumes.*"
        assert re.fullmatch(told, lines[0])


def test_the_evaluator_scores_the_last_checkpoint_before_the_chief_leaves(make):
    evaluated = make()
    flags = [*EXACT, "--export", "best"]
    evaluated.run("chief", "worker", "evaluator", flags=flags)
    assert not [e for e in evaluated.events() if e["event"] == "evaluation"]
    scored = [e for e in evaluated.events("evaluator-0") if e["event"] == "evaluation"]
    assert scored[-1]["step"] == STEPS
    assert all(e["step"] % EVERY == 0 for e in scored)
    record = json.loads((evaluated.directory / "DONE.json").read_text())
    assert record["validation"]["latest"]["step"] == STEPS
    best = max(scored, key=lambda e: (e["accuracy"], -e["loss"]))
    assert record["validation"]["best"]["step"] == best["step"]
    exported = [e for e in evaluated.events() if e["event"] == "export"]
    assert exported[0]["exported_step"] == record["exported_step"] == best["step"]
    points = scalars(evaluated.directory / "logs" / "validation")
    assert points["accuracy"][STEPS] == pytest.approx(scored[-1]["accuracy"])
    # Asked for more, it does not take the end of the first job for that of the second.
    evaluated.run("chief", "worker", "evaluator", flags=[*flags, "--train-steps", STEPS + EVERY])
    assert [e["step"] for e in evaluated.events("evaluator-0") if e["event"] == "evaluation"][-1] == STEPS + EVERY


def scalars(directory: pathlib.Path) -> dict[str, dict[int, float]]:
    """What TensorBoard's own reader finds: values by name and step."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(directory), size_guidance={"tensors": 0}).Reload()
    names = events.Tags()["tensors"]
    return {name: {e.step: float(make_ndarray(e.tensor_proto)) for e in events.Tensors(name)} for name in names}


def test_tensorboard_and_a_study_are_told_what_the_journal_has_and_checkpoints_are_made_by_time_too(make):
    alone = make()
    study = alone.directory.parent / "hypertune" / "output.metrics"
    alone.environ = {"CLOUD_ML_HP_METRIC_FILE": str(study), "CLOUD_ML_TRIAL_ID": "7"}
    flags = ["--train-steps", 900, "--eval-every-steps", 150, "--schedule", "linear", "--learning-rate", 0.002]
    output = alone.run("chief", flags=[*flags, "--checkpoint-secs", 0.5, "--checkpoint-num-steps", 400])
    assert re.search(r"step 900/900 +loss \d\.\d+ +accuracy \d\.\d+ +[\d]+ examples/s", output)
    assert len(re.findall(r"step \d+  validation loss \d\.\d+  accuracy \d\.\d+", output)) == 6
    by_event: dict[str, list[dict]] = {}
    for event in alone.events():
        by_event.setdefault(event["event"], []).append(event)
    assert [e["step"] for e in by_event["evaluation"]] == [150, 300, 450, 600, 750, 900]
    assert by_event["evaluation"][-1]["accuracy"] > 0.9
    saves = by_event["checkpoint"]
    assert {400, 800, 900} <= {e["step"] for e in saves}
    assert {e["step"] for e in saves} - {400, 800, 900}, "none by time"
    assert all(0 <= e["waited_s"] < e["seconds"] + 0.5 for e in saves)

    train, validation = (scalars(alone.directory / "logs" / part) for part in ("train", "validation"))
    windows = {e["step"]: e for e in by_event["step"]}
    for name in ("loss", "accuracy", "examples_per_s"):
        assert train[name] == pytest.approx({step: e[name] for step, e in windows.items()}, rel=1e-5)
    # After the step: what the next one would take.
    assert train["learning_rate"] == pytest.approx({step: 0.002 * (1 - step / 900) for step in windows}, abs=1e-8)
    for name in ("loss", "accuracy"):
        assert validation[name] == pytest.approx({e["step"]: e[name] for e in by_event["evaluation"]}, rel=1e-5)
        reports = [report for report in map(json.loads, study.read_text().splitlines()) if name in report]
        expected = {e["step"]: e[name] for e in by_event["evaluation"]}
        assert {int(r["global_step"]): float(r[name]) for r in reports} == expected
        assert {r["trial"] for r in reports} == {"7"}


def test_parameter_servers_count_every_step_once_over_a_stop_and_a_resume_with_checkpoints_by_time_too(make):
    asynchronous, roles = make(), ["chief", "worker", "worker", "ps"]
    # At first asked for more than it will do, and saved by time alone.
    by_time = ["--train-steps", 100_000, "--checkpoint-num-steps", 0, "--checkpoint-secs", 0.5]
    asynchronous.start(*roles, flags=by_time)
    asynchronous.until(lambda: sum(e["event"] == "checkpoint" for e in asynchronous.events()) >= 3)
    saves = [e["time"] for e in asynchronous.events() if e["event"] == "checkpoint"]
    assert max(b - a for a, b in itertools.pairwise(saves)) < 20
    asynchronous.terminate("ps-0")
    codes = asynchronous.wait_for("chief-0", "ps-0")
    assert codes == {"chief-0": 143, "ps-0": 143}, asynchronous.output()
    asynchronous.close()
    (stopped_at,) = [e["step"] for e in asynchronous.events() if e["event"] == "preempted"]
    last = stopped_at + 200
    output = asynchronous.run(*roles, flags=["--train-steps", last, "--checkpoint-num-steps", 100])
    assert f"from step {stopped_at} to {last}" in output
    # Our own step, and the optimizer's counter, its first variable.
    variables = asynchronous.variables(last)
    counters = {n: int(v) for n, v in variables.items() if n.startswith(("step/", "variables/optimizer.S000/"))}
    assert len(counters) == 2
    assert set(counters.values()) == {last}
    record = json.loads((asynchronous.directory / "DONE.json").read_text())
    assert record["step"] == last
    assert record["accuracy"] > 0.9


def test_parameter_server_workers_clip(make):
    asynchronous = make()
    numerics = ["--optimizer", "adamw", "--clip-norm", 1]
    asynchronous.run("chief", "worker", "worker", "ps", flags=["--train-steps", 200, *numerics])
    score = json.loads((asynchronous.directory / "validation.json").read_text())["latest"]
    assert (score["step"], score["accuracy"] > 0.8) == (200, True)


def test_sync_trains_by_all_reduce_in_a_cluster_with_parameter_servers(make, straight):
    synchronous = make()
    codes = synchronous.start("chief", "worker", "ps", flags=[*EXACT, "--sync", "--strategy", "parameter_server"])
    codes = synchronous.wait()
    assert codes == {"chief-0": 0, "worker-0": 0, "ps-0": 0}
    assert "--sync needs no parameter servers" in synchronous.output()
    assert synchronous.digest(STEPS) == straight("two_workers").digest(STEPS)


@pytest.fixture
def finished(straight, tmp_path, digits) -> Job:
    """A copy of a finished job."""
    shutil.copytree(straight("one_device").directory, tmp_path / "finished")
    return Job(digits, tmp_path / "finished")


def task(*flags: object, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer.task", *map(str, flags)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run(command, text=True, cwd=ROOT, **options)


def test_a_model_that_is_gone_is_exported_again_and_a_job_without_checkpoints_is_not_begun_anew(finished):
    record = (finished.directory / "DONE.json").read_text()
    shutil.rmtree(finished.directory / "model")
    assert "its model is gone and is exported again" in finished.run("chief", flags=EXACT)
    assert (finished.directory / "model" / "saved_model.pb").exists()
    assert [e["event"] for e in finished.events() if e["event"] in ("step", "evaluation")] == []
    before, again = json.loads(record), json.loads((finished.directory / "DONE.json").read_text())
    assert all(again[name] == before[name] for name in ("step", "epochs", "validation"))
    assert 0 < again["loss"] < 1 and 0.5 < again["accuracy"] <= 1 and again["examples_per_s"] > 0
    for gone in ("model", "checkpoints"):
        shutil.rmtree(finished.directory / gone)
    finished.start("chief", flags=EXACT)
    assert finished.wait() == {"chief-0": 2}
    assert "its checkpoints are gone; put them back" in finished.output()


def test_a_disk_that_is_full_ends_the_job_in_one_line_and_leaves_the_checkpoint_before(finished):
    import resource

    flags = ["--data-dir", finished.data, "--job-dir", finished.directory, *EXACT, "--train-steps", STEPS + EVERY]
    # As far as a process can make one: no file may grow beyond this.
    limit = (200_000, resource.RLIM_INFINITY)
    full = task(*flags, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    assert full.returncode == 1
    assert full.stderr.startswith(f"error: checkpoint {STEPS + EVERY} could not be saved: ")
    assert full.stderr.count("\n") == 1
    assert finished.checkpoints()[-1] == STEPS
    assert not list((finished.directory / "checkpoints").glob(f"ckpt-{STEPS + EVERY}*"))
    assert "from step 200 to 220" in finished.run("chief", flags=[*EXACT, "--train-steps", STEPS + EVERY])
