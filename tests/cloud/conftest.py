"""Fixture of the tests that run inside the loopback cloud (`make test-cloud`); elsewhere they are skipped."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.parse
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import requests

_LIMIT_S = 900.0  # of a run; a quiet machine takes one to three minutes
IMAGE = f"us-docker.pkg.dev/demo-project/training/image@sha256:{'0' * 64}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submitted:
    """A run that submit.py has waited for."""

    printed: str
    run_id: str
    job_dir: pathlib.Path
    custom_jobs: list[dict[str, Any]]  # what the cloud tells of each of the run's, in order

    def step(self) -> int:
        """Step with which the training was done."""
        return json.loads((self.job_dir / "DONE.json").read_text())["step"]


class Cloud:
    """The cloud as a test sees it: `work` has `buckets` and `logs`; `bucket` is the test's own, `files` what is in it; `image` is one for CPUs."""

    def __init__(self, bucket: str) -> None:
        self.image = IMAGE
        self.work, self.bucket = pathlib.Path(os.environ["LOOPBACK_CLOUD"]), bucket
        self.files = self.work / "buckets" / bucket
        self.files.mkdir()

    def run(self, *words: object) -> subprocess.Popen:
        """Starts a program of Python."""
        command = [sys.executable, *map(str, words)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def start(self, cluster: str, *arguments: object) -> subprocess.Popen:
        """Starts submit.py with --wait; `cluster` is the text of a cluster file. The model is named as the bucket."""
        file = self.work / f"{self.bucket}.yaml"
        file.write_text(cluster)
        flags = [
            "--project",
            "demo-project",
            "--bucket",
            f"gs://{self.bucket}",
            "--image",
            IMAGE,
            "--cluster",
            file,
        ]
        return self.run(
            "pipelines/submit.py", "--wait", "--yes", *flags, "--name", self.bucket, *arguments
        )

    def finish(self, process: subprocess.Popen, code: int = 0) -> Submitted:
        """Waits for submit.py, which has to end with `code`."""
        printed, _ = process.communicate(timeout=_LIMIT_S)
        assert process.returncode == code and "Traceback" not in printed, printed
        run_id = re.search(r"submitted (\S+):", printed)[1]
        return Submitted(
            printed=printed,
            run_id=run_id,
            job_dir=self.files / "runs" / run_id / "job",
            custom_jobs=[job for job in self.jobs() if job["display_name"] == run_id],
        )

    def submit(self, cluster: str, *arguments: object) -> Submitted:
        """Runs submit.py with --wait."""
        return self.finish(self.start(cluster, *arguments))

    def train(
        self, cluster: str, *arguments: object
    ) -> tuple[subprocess.Popen, dict[str, Any], pathlib.Path]:
        """Starts submit.py; returns it, the custom job and its directory as soon as that has a checkpoint."""
        before = len(self.jobs())
        process = self.start(cluster, *arguments)
        ours = f"gs://{self.bucket}/"
        [job, *_] = self.until(
            lambda: [job for job in self.jobs()[before:] if job["output"].startswith(ours)]
        )
        job_dir = self.files / "runs" / job["display_name"] / "job"
        self.until(
            lambda: self.steps(job_dir) > 0
        )  # when the job was first seen its replicas may not have run yet
        return process, next(now for now in self.jobs() if now["number"] == job["number"]), job_dir

    def jobs(self) -> list[dict[str, Any]]:
        """Number, display name, output, state, running replicas and events of each custom job, in order."""
        return self._ask("GET", "jobs").json()

    def starts(self, job: dict[str, Any], replica: str) -> int:
        """How often a replica of the job has started."""
        return sum(
            now["number"] == job["number"] and now["events"].count(f"{replica} started")
            for now in self.jobs()
        )

    def take(self, job: dict[str, Any], replica: str, how: str, **more: Any) -> None:
        """Takes the replica's machine away: `lose` or `preempt`, and with `last=1` for the last time."""
        self._ask("POST", f"jobs/{job['number']}/{how}", params={"replica": replica, **more})

    def lack(self, **machines: int) -> None:
        """Has so many jobs find none of a machine type; `_` stands for `-`."""
        self._ask(
            "PUT",
            "stockouts",
            json={name.replace("_", "-"): jobs for name, jobs in machines.items()},
        )

    def fail(self, *rules: dict[str, Any]) -> None:
        """Sets the faults (`tests.cloud.faults.Fault`) of this test, in place of those before."""
        self._ask("PUT", f"faults/{self.bucket}", json=list(rules))

    def steps(self, job_dir: pathlib.Path) -> int:
        """The newest step that has a checkpoint; -1 before the first."""
        return max(
            (int(path.stem.split("-")[1]) for path in job_dir.glob("checkpoints/ckpt-*.index")),
            default=-1,
        )

    def asked(self, job_dir: pathlib.Path) -> list[str]:
        """What the store was asked for a job, beside its checkpoints, its model and what later steps keep with it."""
        ours = re.compile(
            rf"{job_dir.relative_to(self.files)}(?!/(checkpoints|best|model|evaluation|version)\b)"
        )
        log = urllib.parse.unquote(
            (self.work / "requests.log").read_text()
        )  # names in paths are quoted once
        return [
            line for line in log.splitlines() if f"/{self.bucket}/" in line and ours.search(line)
        ]

    def until(self, ready: Callable[[], Any]) -> Any:
        """What `ready` returns as soon as that is true."""
        deadline = time.monotonic() + 180
        while not (result := ready()):
            assert time.monotonic() < deadline, "nothing came of it"
            time.sleep(0.1)
        return result

    def assert_same_weights(self, one: pathlib.Path, other: pathlib.Path) -> None:
        """Compares the whole state that the newest checkpoints of two job directories hold, bit by bit."""
        # 3 s, which tests of other folders that have this fixture need not wait
        import tensorflow as tf

        readers = [
            tf.train.load_checkpoint(str(job_dir / "checkpoints")) for job_dir in (one, other)
        ]
        kinds, others = (reader.get_variable_to_dtype_map() for reader in readers)
        assert kinds == others
        for name in (name for name, kind in kinds.items() if kind != tf.string):
            assert np.array_equal(*(reader.get_tensor(name) for reader in readers)), name

    def _ask(self, method: str, path: str, **rest: Any) -> requests.Response:
        answer = requests.request(method, f"http://127.0.0.1/loopback/{path}", **rest)
        answer.raise_for_status()
        return answer


@pytest.fixture
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """The cloud, with an empty bucket that has the test's name."""
    if "LOOPBACK_CLOUD" not in os.environ:
        pytest.skip("runs inside the loopback cloud only: make test-cloud")
    words = re.sub("[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    made = Cloud(f"{words[:40].strip('-')}-{zlib.crc32(words.encode()):08x}")
    yield made
    made.fail()
