"""Profiles of some steps, and what a job says of its machine: real processes."""

import pytest

from trainer import options
from trainer.base.errors import UserError

pytestmark = pytest.mark.cluster


def test_the_chief_profiles_the_steps_that_are_asked_for_and_says_what_it_computes_on(job):
    flags = ["--train-steps", 12, "--batch-size", 16, "--precision", "auto", "--profile-steps", "5,8"]
    output = job.run("chief", "worker", flags=flags)
    (profile,) = (job.directory / "logs" / "train").glob("plugins/profile/*/*.xplane.pb")
    assert b"Conv2D" in profile.read_bytes()  # an operation of the steps
    assert output.count("profile written to logs/train") == 1
    ends = [e["step"] for e in job.events() if e["event"] == "step"]
    assert {4, 8, 12} <= set(ends)
    for replica in ("chief-0", "worker-0"):
        (machine,) = [e for e in job.events(replica) if e["event"] == "machine"]
        assert machine["precision"] in ("float32", "bfloat16") and " cores, " in machine["devices"]
    assert f"chief-0 computes in {machine['precision']} on {machine['devices']}" in output


@pytest.mark.parametrize("given", ["5", "8,5", "1,2,3", "11,12"])
def test_what_are_no_steps_of_the_training_is_refused(given):
    with pytest.raises(UserError, match=f"--profile-steps {given}: give the first and the last"):
        options.parse(["--data-dir", "d", "--job-dir", "j", "--train-steps", "10", "--profile-steps", given], {})
