"""Tests of the command's answers before TensorFlow is imported."""

import subprocess
import sys

import pytest

from tests.root import ROOT

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

    def run(flags):
        words = f"--data-dir {job.data} --job-dir {job.directory} --train-steps {flags}".split()
        line = [sys.executable, "-c", PROGRAM, *words]
        ended = subprocess.run(line, capture_output=True, text=True, cwd=ROOT)
        return ended.returncode, ended.stdout, ended.stderr

    assert run("10") == (0, f"{job.directory}: already done at step 10\n", "")
    code, output, errors = run("11 --seed 4")
    assert (code, output, errors.count("\n")) == (2, "", 1) and "seed: 0 -> 4" in errors
    assert sorted(job.directory.rglob("*")) == before
