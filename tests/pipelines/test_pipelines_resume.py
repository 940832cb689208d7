"""A run that was ended at any moment, however, is finished by a resume as if nothing had been."""

import json
import random
import signal
import subprocess
import time

import pytest

from tests.programs import ended, start_python
from tools.prove_gpu.__main__ import weights

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
CLUSTER = ("--cluster", "clusters/local.yaml")
FLAGS = (*CLUSTER, "--train-steps", 300, "--", "--checkpoint-num-steps", 50)


def begin(place):
    where = ["--runs-dir", place / "runs", "--registry", place / "registry"]
    return start_python("pipelines/run.py", *where, *FLAGS)


def outcome(place):
    """Returns all that must not depend on what a run has been through."""
    (path,) = place.glob("runs/*/summary.json")
    summary = json.loads(path.read_text())
    assert summary["status"] == "succeeded"
    trained = weights(path.parent / "job")
    assert len(trained) == 10
    (version,) = place.glob("registry/digits/[0-9]*")
    aliases = (place / "registry" / "digits" / "aliases.json").read_text()
    return trained, version.name, json.loads(aliases), summary["model"], summary["metrics"]


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    place, began = tmp_path_factory.mktemp("undisturbed"), time.monotonic()
    ended(begin(place))
    return outcome(place), time.monotonic() - began


SOME = [pytest.param(0, marks=pytest.mark.pipeline)]
MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 150)]


@pytest.mark.parametrize("seed", [*SOME, *MANY])
def test_ended_run_resumes_to_same_outcome(undisturbed, tmp_path, seed):
    """A run that ends at any moment, and perhaps its resumes too, yields the same version."""
    (expected, seconds), chance, story = undisturbed, random.Random(seed), []
    process = begin(tmp_path)
    while chance.random() < (0.3 if story else 1):
        moment_s, number = chance.uniform(0.2, seconds), chance.choice(SIGNALS)
        story.append((round(moment_s, 2), number.name))
        try:
            process.communicate(timeout=moment_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            output, _ = process.communicate(timeout=60)
            assert process.returncode in (0, 128 + number, -number), (story, output)
        runs = list(tmp_path.glob("runs/*/run.json"))
        resume = "pipelines/runs.py", "resume"
        process = start_python(*resume, runs[0].parent) if runs else begin(tmp_path)
    output = ended(process)
    assert outcome(tmp_path) == expected, (story, output)
