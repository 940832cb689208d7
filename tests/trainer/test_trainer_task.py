"""Tests of the command's answers before TensorFlow is imported."""

import subprocess
import sys

import pytest

from tests.root import ROOT
from trainer import options
from trainer.job import done, identity

PROGRAM = """
import sys
from trainer.task import main
code = main(sys.argv[1:])
assert "tensorflow" not in sys.modules
sys.exit(code)
"""


@pytest.mark.long
def test_finished_job_has_nothing_to_do(digits, images, tmp_path):
    flags = f"--data-dir {digits} --job-dir {tmp_path} --train-steps 10 --strategy one_device"
    opts = options.parse(f"{flags} --model cnn".split(), {})
    identity.begin(str(tmp_path), {"identity": opts.facts(images), "settings": {}}, write=True)
    facts = {"loss": 0.5, "validation": {}, "seconds": 1.0, "examples_per_s": None}
    done.Done(step=10, epochs=1.0, **facts).save(str(tmp_path))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").touch()
    before = sorted(tmp_path.rglob("*"))

    def run(more):
        command = [sys.executable, "-c", PROGRAM, *flags.split(), *more.split()]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        return ended.returncode, ended.stdout, ended.stderr

    assert run("") == (0, f"{tmp_path}: already done at step 10\n", "")
    code, output, errors = run("--train-steps 11 --seed 4")
    assert (code, output, errors.count("\n")) == (2, "", 1) and "seed: 0 -> 4" in errors
    assert sorted(tmp_path.rglob("*")) == before
