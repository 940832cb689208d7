"""SIGTERM to a replica, whatever the job is doing: saved, and gone within 10 seconds."""

import pytest

pytestmark = pytest.mark.cluster
STEPS = 60
# Evaluations of one example at a time, to have some time in them.
FLAGS = f"--model resnet --num-layers 20 --batch-size 32 --train-steps {STEPS}"
FLAGS += " --checkpoint-num-steps 20 --eval-every-steps 30 --eval-batch-size 1"


@pytest.mark.parametrize("phase", ["training", "step", "evaluating", "saving", "exporting"])
@pytest.mark.parametrize(
    "roles",
    [pytest.param(roles, marks=pytest.mark.slow) for roles in ("chief", "chief worker ps")]
    + ["chief worker"],
)
def test_stopped_replica_leaves_in_time(job, roles, phase):
    roles = roles.split()
    victim = f"{roles[-1]}-0"
    job.start(*roles, flags=FLAGS)
    if phase == "step":
        job.until_step(1)
    else:
        job.until(lambda: job.phase() == phase)  # the first part of "training" is tracing
    job.terminate(victim)
    assert job.wait(victim, within_s=10) == {victim: 143}
    # An export goes on when it is another replica that is told.
    is_done = phase == "exporting" and victim != "chief-0"
    assert job.wait("chief-0") == {"chief-0": 0 if is_done else 143}
    assert job.steps("preempted") in ([], job.checkpoints()[-1:])
    job.start(*roles, flags=FLAGS)
    assert job.wait("chief-0") == {"chief-0": 0}
    record = job.read("DONE.json")
    assert record["step"] == record["validation"]["latest"]["step"] == STEPS
    assert record["loss"] is not None
    assert (job.directory / "model" / "saved_model.pb").exists()
