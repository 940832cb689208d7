"""Tests of the command's answers before TensorFlow is imported."""

import pytest

from tests.programs import run_python

PROGRAM = """
import sys
from trainer.task import main
code = main(sys.argv[1:])
assert "tensorflow" not in sys.modules
sys.exit(code)
"""


@pytest.mark.cluster
def test_finished_job_has_nothing_to_do(job):
    job.run("chief", flags="--train-steps 10")
    before = sorted(job.directory.rglob("*"))

    def run(flags, code):
        words = f"--data-dir {job.data} --job-dir {job.directory} --train-steps {flags}".split()
        return run_python("-c", PROGRAM, *words, code=code)

    assert run("10", 0) == f"{job.directory}: already done at step 10\n"
    error = run("11 --seed 4", 2)
    assert error.count("\n") == 1 and "seed: 0 -> 4" in error
    assert sorted(job.directory.rglob("*")) == before
