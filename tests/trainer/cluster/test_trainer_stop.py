"""SIGTERM to a replica, whatever the job is doing: saved, and gone within 10 seconds."""

import json

import pytest

pytestmark = pytest.mark.slow
ROLES = {
    "one_device": ["chief"],
    "two_workers": ["chief", "worker"],
    "parameter_server": ["chief", "worker", "ps"],
}
STEPS = 60
# Evaluations of one example at a time, to have some time in them.
FLAGS = ["--model", "resnet", "--num-layers", 20, "--batch-size", 32, "--train-steps", STEPS]
FLAGS += ["--checkpoint-num-steps", 20, "--eval-every-steps", 30, "--eval-batch-size", 1]


@pytest.mark.parametrize("phase", ["training", "step", "evaluating", "saving", "exporting"])
@pytest.mark.parametrize("how", ROLES)
def test_any_replica_told_to_stop_leaves_in_time_and_the_job_can_be_finished(job, how, phase):
    roles = ROLES[how]
    victim = f"{roles[-1]}-0"
    job.start(*roles, flags=FLAGS)
    if phase == "step":
        job.until_step(1)
    else:
        job.until(lambda: job.status()["phase"] == phase)  # the first part of "training" is tracing
    job.terminate(victim)
    assert job.wait_for(victim, within_s=10) == {victim: 143}, job.output()
    # An export goes on when it is another replica that is told.
    assert job.wait_for("chief-0") == {
        "chief-0": 0 if phase == "exporting" and victim != "chief-0" else 143
    }
    job.close()
    stopped = [e["step"] for e in job.events() if e["event"] == "preempted"]
    assert stopped in ([], job.checkpoints()[-1:])
    job.start(*roles, flags=FLAGS)
    assert job.wait_for("chief-0") == {"chief-0": 0}, job.output()
    record = json.loads((job.directory / "DONE.json").read_text())
    assert record["step"] == record["validation"]["latest"]["step"] == STEPS
    assert record["loss"] is not None
    assert (job.directory / "model" / "saved_model.pb").exists()
