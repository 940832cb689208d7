"""Fixture of the tests that run inside the loopback cloud (`make test-cloud`); elsewhere they are skipped."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import requests
import tensorflow as tf

_IMAGE = f"us-docker.pkg.dev/demo-project/training/image@sha256:{'0' * 64}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submitted:
    """A run that submit.py has waited for.

    Attributes:
      code: Exit code of submit.py.
      printed: What it printed.
      run_id: Of the run.
      job_dir: The run's job directory, as files.
      custom_jobs: What the cloud tells of each custom job of the run, in order.
    """

    code: int
    printed: str
    run_id: str
    job_dir: pathlib.Path
    custom_jobs: list[dict[str, Any]]

    def done(self) -> dict[str, Any]:
        """DONE.json of the training."""
        return json.loads((self.job_dir / "DONE.json").read_text())


class Cloud:
    """The cloud as a test sees it, with a bucket of the test's own.

    Attributes:
      work: Directory of the cloud, with `buckets` and `logs`.
      bucket: Name of the bucket.
    """

    def __init__(self, bucket: str) -> None:
        self.work, self.bucket = pathlib.Path(os.environ["LOOPBACK_CLOUD"]), bucket
        self.files = self.work / "buckets" / bucket
        self.files.mkdir()

    def start(self, cluster: str, *arguments: object) -> subprocess.Popen:
        """Starts submit.py with --wait; `cluster` is the text of a cluster file."""
        file = self.work / f"{self.bucket}.yaml"
        file.write_text(cluster)
        flags = {"--project": "demo-project", "--bucket": f"gs://{self.bucket}", "--image": _IMAGE, "--cluster": file}
        words = [word for pair in flags.items() for word in pair]
        return self.run("pipelines/submit.py", "--wait", *words, *arguments)

    def run(self, *words: object) -> subprocess.Popen:
        """Starts a program of Python."""
        command = [sys.executable, *map(str, words)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def finish(self, process: subprocess.Popen) -> Submitted:
        """Waits for submit.py."""
        printed, _ = process.communicate()
        found = re.search(r"submitted (\S+):", printed)
        assert found, printed
        return Submitted(
            code=process.returncode,
            printed=printed,
            run_id=found[1],
            job_dir=self.files / "runs" / found[1] / "job",
            custom_jobs=[job for job in self.jobs() if job["display_name"] == found[1]],
        )

    def submit(self, cluster: str, *arguments: object) -> Submitted:
        """Runs submit.py with --wait."""
        return self.finish(self.start(cluster, *arguments))

    def jobs(self) -> list[dict[str, Any]]:
        """Number, display name, state, running replicas and events of each custom job."""
        return self._ask("GET", "jobs").json()

    def job(self, *, but: str = "", limit_s: float = 180.0) -> dict[str, Any]:
        """The custom job of this bucket's run, as soon as there is one; not that of the run `but`."""
        ours = f"gs://{self.bucket}/"
        return self.until(
            lambda: next((j for j in self.jobs() if j["output"].startswith(ours) and j["display_name"] != but), None),
            limit_s,
        )

    def take(self, job: dict[str, Any], replica: str, *, how: str) -> None:
        """Takes the replica's machine away: `lose` or `preempt`."""
        self._ask("POST", f"jobs/{job['number']}/{how}", params={"replica": replica})

    def fail(self, *rules: dict[str, Any]) -> None:
        """Sets the faults (`tests.cloud.faults.Fault`) of this test, in place of those before."""
        self._ask("PUT", f"faults/{self.bucket}", json=list(rules))

    def steps(self, job_dir: pathlib.Path) -> int:
        """The newest step that has a checkpoint; -1 before the first."""
        return max((int(path.stem.split("-")[1]) for path in job_dir.glob("checkpoints/ckpt-*.index")), default=-1)

    def until(self, ready: Any, limit_s: float) -> Any:
        """What `ready` returns as soon as that is true."""
        deadline = time.monotonic() + limit_s
        while not (result := ready()):
            assert time.monotonic() < deadline, "nothing came of it"
            time.sleep(0.1)
        return result

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


@pytest.fixture
def weights() -> Callable[[pathlib.Path], dict[str, np.ndarray]]:
    """Gives the whole state that a job directory's newest checkpoint holds."""

    def read(job_dir: pathlib.Path) -> dict[str, np.ndarray]:
        reader = tf.train.load_checkpoint(str(job_dir / "checkpoints"))
        numeric = [name for name, kind in reader.get_variable_to_dtype_map().items() if kind != tf.string]
        return {name: reader.get_tensor(name) for name in sorted(numeric)}

    return read
