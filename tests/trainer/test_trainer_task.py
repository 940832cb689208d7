"""What the command answers before TensorFlow is imported."""

import json
import os
import pathlib
import subprocess
import sys

import numbered
import pytest

from common.manifest import Manifest
from trainer import options
from trainer.job import done, identity

ROOT = pathlib.Path(__file__).parents[2]
CLUSTER = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}


@pytest.fixture
def flags(digits, tmp_path) -> list[str]:
    """Of a job that was done."""
    flags = [
        "--data-dir",
        str(digits),
        "--job-dir",
        str(tmp_path),
        "--train-steps",
        "10",
        "--strategy",
        "one_device",
    ]
    opts, manifest = options.parse([*flags, "--model", "cnn"], {}), Manifest.load(digits)
    identity.begin(str(tmp_path), {"identity": opts.facts(manifest), "settings": {}}, write=True)
    done.Done(
        step=10, epochs=1.0, loss=0.5, accuracy=0.5, validation={}, seconds=1.0, examples_per_s=None
    ).save(str(tmp_path))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").touch()
    return flags


def run(
    flags: list[str], environ: dict[str, str] | None = None, **options
) -> subprocess.CompletedProcess[str]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"} | (
        environ or {}
    )
    return subprocess.run(
        [sys.executable, "-m", "trainer.task", *flags], text=True, cwd=ROOT, env=environ, **options
    )


def told(flags: list[str], **environ: str) -> str:
    """The one line of a refusal."""
    result = run(flags, environ)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1), result
    return result.stderr


def test_a_finished_job_has_nothing_to_do_within_two_seconds_and_its_streams_may_be_closed_or_gone(
    flags, tmp_path
):
    before = sorted(tmp_path.rglob("*"))
    program = f"import sys, time; from trainer.task import main; assert not main({flags!r}); "
    program += "assert 'tensorflow' not in sys.modules and time.process_time() < 2"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert (
        result.stdout.endswith(": already done at step 10\n")
        and sorted(tmp_path.rglob("*")) == before
    )
    assert "seed: 0 -> 4" in told([*flags, "--train-steps", "11", "--seed", "4"])
    closed = run(flags, preexec_fn=lambda: [os.close(number) for number in (1, 2)])
    assert (closed.returncode, closed.stderr) == (0, "")
    reader, writer = os.pipe()
    os.close(reader)
    result = run(flags, stdout=writer)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")


def test_what_is_wrong_with_the_job_directory_is_told_in_one_line(flags, tmp_path):
    (tmp_path / "file").touch()
    assert "; use another" in told([*flags, "--job-dir", str(tmp_path / "file" / "job")])
    for name in ("DONE.json", "job.json"):  # which is looked at first
        (tmp_path / name).write_text("garbage")
        assert told(flags).startswith(f"error: {tmp_path / name} cannot be used (")


def test_the_best_of_a_job_that_nothing_judges_is_refused(flags, tmp_path):
    numbered.dataset(tmp_path / "data", 6)  # without a validation split
    said = told([*flags, "--data-dir", str(tmp_path / "data"), "--export", "best"])
    assert said.startswith(
        "error: --export best: dataset 'numbered' has no validation split to judge by"
    )


def test_sync_is_no_other_job(flags, tmp_path):
    config = json.dumps({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}})
    # A synchronous job like the one that was done, whereas parameter servers would learn something
    # else.
    assert (
        run([*flags, "--strategy", "parameter_server", "--sync"], {"TF_CONFIG": config}).returncode
        == 0
    )
    assert "synchronous' -> 'asynchronous'" in told(
        [*flags, "--strategy", "parameter_server"], TF_CONFIG=config
    )
