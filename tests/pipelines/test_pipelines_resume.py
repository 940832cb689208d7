"""A run that was ended at any moment, however, is finished by a resume as if nothing had been."""

import functools
import json
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
FLAGS = (
    "--cluster",
    "clusters/local.yaml",
    "--train-steps",
    "300",
    "--",
    "--checkpoint-num-steps",
    "50",
)


def start(*line: object) -> subprocess.Popen[str]:
    # Who runs tests in the background of a shell has them ignore Ctrl-C, and a child inherits that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, *map(str, line)], cwd=ROOT, preexec_fn=heed, **told)


def begin(place: pathlib.Path) -> subprocess.Popen[str]:
    return start(
        "pipelines/run.py", "--runs-dir", place / "runs", "--registry", place / "registry", *FLAGS
    )


def outcome(
    place: pathlib.Path, weights: Callable[[pathlib.Path], list[bytes]]
) -> tuple[object, ...]:
    """All that must not depend on what a run has been through: weights, registry and verdict."""
    (told,) = (json.loads(path.read_text()) for path in place.glob("runs/*/summary.json"))
    assert told["status"] == "succeeded"
    versions = sorted(place.glob("registry/digits/[0-9]*"))
    aliases = json.loads((place / "registry" / "digits" / "aliases.json").read_text())
    return (
        weights(versions[0]),
        [version.name for version in versions],
        aliases,
        told["model"],
        told["metrics"],
    )


@pytest.fixture(scope="session")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, weights
) -> tuple[tuple[object, ...], float]:
    place, began = tmp_path_factory.mktemp("undisturbed"), time.monotonic()
    said, _ = (process := begin(place)).communicate(timeout=240)
    assert process.returncode == 0, said
    return outcome(place, weights), time.monotonic() - began


SOME = [pytest.param(seed, marks=pytest.mark.pipeline) for seed in range(1)]
MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 150)]


@pytest.mark.parametrize("seed", [*SOME, *MANY])
def test_a_run_that_was_ended_and_resumed_has_the_weights_and_the_version_of_one_that_was_not(
    undisturbed, weights, tmp_path, seed
):
    """It ends at a moment, and then its resumes too, perhaps; what the last of these leaves is looked at."""
    (expected, seconds), chance, story = undisturbed, random.Random(seed), []
    process = begin(tmp_path)
    while chance.random() < (0.3 if story else 1):
        moment_s, number = chance.uniform(0.2, seconds), chance.choice(SIGNALS)
        story.append((round(moment_s, 2), number.name))
        try:
            said, _ = process.communicate(timeout=moment_s)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            said, _ = process.communicate(timeout=60)
            assert process.returncode in (0, 128 + number, -number), (story, said)
        runs = list(tmp_path.glob("runs/*/run.json"))
        process = start("pipelines/runs.py", "resume", runs[0].parent) if runs else begin(tmp_path)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, (story, said)
    assert outcome(tmp_path, weights) == expected, (story, said)
