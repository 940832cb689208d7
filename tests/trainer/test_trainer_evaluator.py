"""The replica that scores checkpoints beside training: real processes."""

from __future__ import annotations

import time

import psutil
import pytest
from trainer_jobs import Job

pytestmark = pytest.mark.cluster
FLAGS = ["--checkpoint-num-steps", 10, "--batch-size", 16]


@pytest.fixture
def job(digits, tmp_path):
    one = Job(digits, tmp_path / "job")
    yield one
    one.close()


def test_a_newest_checkpoint_that_is_damaged_is_named_once_while_the_evaluator_waits_for_the_next(job):
    job.run("chief", flags=[*FLAGS, "--train-steps", 30])
    (job.directory / "validation.json").unlink()
    for name in ("index", "data-00000-of-00001"):
        (job.directory / "checkpoints" / f"ckpt-30.{name}").write_bytes(b"")
    evaluator, flags = Job(job.data, job.directory), [*FLAGS, "--train-steps", 50]
    evaluator.start("evaluator", flags=flags)
    try:
        evaluator.until(lambda: any(e["event"] == "evaluation" for e in job.events("evaluator-0")))
        process = psutil.Process(evaluator.pid("evaluator-0"))
        before = process.cpu_times()
        time.sleep(3)
        after = process.cpu_times()
        assert after.user + after.system - before.user - before.system < 1.5
        job.run("chief", flags=flags)
        assert evaluator.wait() == {"evaluator-0": 0}
    finally:
        evaluator.close()
    assert evaluator.log("evaluator-0").read_text().count("checkpoint 30 cannot be read and is passed over") == 1
    scored = [e["step"] for e in job.events("evaluator-0") if e["event"] == "evaluation"]
    assert (scored[0], scored[-1]) == (20, 50)
