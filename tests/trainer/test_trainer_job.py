"""Real training: real processes, real checkpoints, real kills."""

import itertools
import json
import re
import resource
import shutil

import numpy as np
import pytest
import tensorflow as tf
from parsed import options
from trainer_jobs import CLUSTERS, kill_at_random

from tests.programs import run_python
from trainer.data import records

pytestmark = pytest.mark.cluster
STEPS, EVERY = 200, 20
# Evaluations between checkpoints: calls must not have other lengths for them.
EXACT = f"--deterministic --train-steps {STEPS} --checkpoint-num-steps {EVERY}"
EXACT += " --eval-every-steps 50"
# At higher rates, and with Adam, 200 steps make a difference of 1e-2 out of rounding, as another
# number of threads on one device does.
SMOOTH = " --optimizer sgd --learning-rate 0.001"
# All that has a state of its own, or its own way through a step; a small batch, because without
# instructions for it bfloat16 is slow.
STATEFUL = " --precision bfloat16 --optimizer adamw --clip-norm 0.05 --batch-size 16"
OWN = ("functional", "sequential", "subclassed", "batch_norm")
MODELS = {"cnn": "", "stateful": STATEFUL, "own optimizer": " --model fine_tuned:subclassed"}
MODELS |= {n: f" --model own_models:{n}" for n in OWN}
SYNCHRONOUS = list(CLUSTERS)[:3]
SLOW = pytest.mark.slow
OFTEN = {
    *((how, "cnn") for how in SYNCHRONOUS),
    ("two_workers", "stateful"),
    ("two_workers", "functional"),
    ("one_device", "own optimizer"),
    ("one_device", "sequential"),
    ("mirrored", "subclassed"),
    ("two_workers", "batch_norm"),
}
CELLS = [
    pytest.param(*cell, marks=[] if cell in OFTEN else SLOW)
    for cell in itertools.product(SYNCHRONOUS, MODELS)
]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=SLOW), pytest.param(2, marks=SLOW)])
@pytest.mark.parametrize(("how", "model"), CELLS)
def test_killed_job_resumes_to_same_bits(job, undisturbed, images, how, model, seed):
    """Our own model gets its split from memory before the kill, and from mapped files after it."""
    roles, flags = CLUSTERS[how]
    flags = EXACT + flags + MODELS[model]
    victims = (None, "chief-0", f"{roles[-1]}-0")  # all at once, or one
    job.start(*roles, flags=flags)
    died_at = kill_at_random(job, seed, between=(2 * EVERY, STEPS - EVERY), victim=victims[seed])
    assert {*job.wait().values()} <= {-9, 1}
    newest = job.checkpoints()[-1]
    # By another reader LSTMs are compiled in another way, and rounded so.
    job.run(*roles, flags=flags if model in OWN else f"{flags} --reader mapped")
    assert job.steps("resume") == [newest]
    # One interval, and another one if the last checkpoint was still being written.
    assert died_at - newest <= 2 * EVERY
    assert job.events("done")[0]["steps"] == STEPS - newest
    assert job.digest(STEPS) == undisturbed(how, EXACT + MODELS[model]).digest(STEPS)
    # The export has the precision of the job, and is loaded into a process of another.
    image = next(records.batches(images, str(job.data), "test", 50))["image"]
    trained = job.trained(options(flags).on(images).builder(images)(), STEPS)
    answers, expected = job.served(image=image), tf.nn.softmax(trained({"image": image}))
    near = 0.05 if model == "stateful" else 1e-6
    np.testing.assert_allclose(answers["probabilities"], expected, atol=near)


@pytest.mark.parametrize("then", [["chief"], ["chief", "worker", "worker"]], ids=["one", "three"])
def test_job_resumes_with_other_replicas(job, undisturbed, then):
    whole = undisturbed("two_workers", EXACT + SMOOTH)
    shutil.copytree(whole.directory, job.directory)
    (job.directory / "DONE.json").unlink()
    for file in job.directory.glob(f"checkpoints/ckpt-{STEPS}.*"):
        file.unlink()
    job.run(*then, flags=EXACT + SMOOTH)
    assert job.steps("resume") == [STEPS - EVERY]
    actual = job.variables(STEPS)
    for name, value in whole.variables(STEPS).items():
        np.testing.assert_allclose(actual[name], value, rtol=0, atol=1e-5, err_msg=name)


def test_changed_global_batch_is_refused(job):
    flags = "--train-batch-size 16 --train-steps"
    job.run("chief", flags=f"{flags} 4")
    job.start("chief", flags=f"{flags} 8 --strategy mirrored")
    assert job.wait() == {"chief-0": 2}
    assert "--per-replica-batch-size 16 on 2 replicas makes 32 examples a step" in job.output()


@pytest.mark.smoke
def test_sigterm_to_replica_saves_one_step(job, undisturbed):
    job.start("chief", "worker", flags=EXACT)
    job.until_step(EVERY)
    job.terminate("worker-0")
    assert job.wait(within_s=10) == {"chief-0": 143, "worker-0": 143}
    step = job.checkpoints()[-1]
    assert job.steps("preempted") == job.steps("preempted", "worker-0") == [step]
    assert f"saved at step {step}" in job.output()
    job.run("chief", "worker", flags=EXACT)
    assert job.digest(STEPS) == undisturbed("two_workers", EXACT).digest(STEPS)


def test_lost_replica_is_one_line(job):
    job.start("chief", "worker", "worker", flags="--train-steps 100000")
    job.until_step(10)
    job.kill("worker-1")
    assert job.wait() == {"chief-0": 1, "worker-0": 1, "worker-1": -9}
    for survivor in ("chief-0", "worker-0"):
        log = job.log(survivor).read_text()
        (error,) = re.findall("^(?!step |cnn on |reader: |chief-0 computes in ).+", log, re.M)
        assert re.match(f"error: {survivor} cannot go on without .*worker-1.*; the same", error)


def test_evaluator_scores_last_checkpoint(job):
    flags = f"{EXACT} --export best"
    job.run("chief", "worker", "evaluator", flags=flags)
    assert not job.events("evaluation")
    scored = job.events("evaluation", "evaluator-0")
    best = max(scored, key=lambda e: (e["accuracy"], -e["loss"]))["step"]
    record = job.read("DONE.json")
    assert record["validation"]["latest"]["step"] == scored[-1]["step"] == STEPS
    assert record["validation"]["best"]["step"] == record["exported_step"] == best
    # With more steps, it does not take the end of the first job for that of the second.
    job.run("chief", "worker", "evaluator", flags=f"{flags} --train-steps {STEPS + EVERY}")
    assert job.steps("evaluation", "evaluator-0")[-1] == STEPS + EVERY


def scalars(directory, name):
    """Returns values by step, as TensorBoard's own reader has them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(directory), size_guidance={"tensors": 0}).Reload()
    return {e.step: float(make_ndarray(e.tensor_proto)) for e in events.Tensors(name)}


def test_reports_agree_with_journal(job):
    """The console, TensorBoard and a study report what the journal has."""
    study = job.directory.parent / "hypertune" / "output.metrics"
    job.environ = {"CLOUD_ML_HP_METRIC_FILE": str(study), "CLOUD_ML_TRIAL_ID": "7"}
    flags = "--train-steps 900 --eval-every-steps 150 --learning-rate 0.002"
    output = job.run("chief", flags=f"{flags} --checkpoint-secs 0.5 --checkpoint-num-steps 400")
    assert re.search(r"step 900/900 +loss \d\.\d+ +accuracy \d\.\d+ +[\d]+ examples/s", output)
    assert len(re.findall(r"step \d+  validation loss \d\.\d+  accuracy \d\.\d+", output)) == 6
    assert job.steps("evaluation") == [*range(150, 901, 150)]
    assert job.events("evaluation")[-1]["accuracy"] > 0.9
    assert {*job.steps("checkpoint")} > {400, 800, 900}, "none by time"

    def noted(kind, name):
        return pytest.approx({e["step"]: e[name] for e in job.events(kind)}, rel=1e-5)

    logs = job.directory / "logs"
    reports = [json.loads(line) for line in study.read_text().splitlines()]
    assert {report["trial"] for report in reports} == {"7"}
    for name in ("loss", "accuracy"):
        assert scalars(logs / "train", name) == noted("step", name)
        of_study = {int(r["global_step"]): float(r[name]) for r in reports if name in r}
        assert scalars(logs / "validation", name) == noted("evaluation", name)
        assert of_study == noted("evaluation", name)


def test_parameter_servers_count_steps_over_resume(job):
    roles = ["chief", "worker", "worker", "ps"]
    # More steps than it will do at first, and saved by time alone.
    by_time = "--train-steps 100000 --checkpoint-num-steps 0 --checkpoint-secs 0.5"
    job.start(*roles, flags=by_time)
    job.until(lambda: len(job.events("checkpoint")) >= 3)
    job.terminate("ps-0")
    assert job.wait("chief-0", "ps-0") == {"chief-0": 143, "ps-0": 143}
    (stopped_at,) = job.steps("preempted")
    last = stopped_at + 200
    output = job.run(*roles, flags=f"--train-steps {last} --checkpoint-num-steps 100")
    assert f"from step {stopped_at} to {last}" in output
    # Our own step, and the optimizer's counter, its first variable.
    counters = "step/", "variables/optimizer.S000/"
    counted = [v for name, v in job.variables(last).items() if name.startswith(counters)]
    assert counted == [last, last]
    record = job.read("DONE.json")
    assert record["step"] == last and record["accuracy"] > 0.9


def test_full_disk_keeps_checkpoint_before(job, undisturbed):
    shutil.copytree(undisturbed("one_device", EXACT).directory, job.directory)
    # As far as a process can make one: no file may grow beyond this.
    limit = (200_000, resource.RLIM_INFINITY)
    flags = f"{EXACT} --train-steps {STEPS + EVERY}"
    command = f"-m trainer.task --data-dir {job.data} --job-dir {job.directory} {flags}"
    fill = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)}
    printed = run_python(*command.split(), code=1, **fill)
    error = f"error: checkpoint {STEPS + EVERY} could not be saved: "
    assert printed.splitlines()[-1].startswith(error) and "Traceback" not in printed
    assert job.checkpoints()[-1] == STEPS
    assert not [*job.directory.glob(f"checkpoints/ckpt-{STEPS + EVERY}*")]
    assert "from step 200 to 220" in job.run("chief", flags=flags)
    # Without a checkpoint a finished job does not begin anew.
    for name in ("model", "checkpoints"):
        shutil.rmtree(job.directory / name)
    job.start("chief", flags=flags)
    assert job.wait() == {"chief-0": 2}
    assert "its checkpoints are gone; put them back" in job.output()
