"""A Vertex AI, a store and a log of this machine, where jobs end as a test says."""

import contextlib
import datetime
import json
from collections.abc import Callable
from typing import Any

from google.cloud import aiplatform_v1 as v1

from components.train.__main__ import main
from components.train.backends import vertex_client
from tests.cloud.collection import now
from tests.cloud.entries import Entries
from tests.cloud.front import Front

IMAGE = f"us-docker.pkg.dev/p/r/i@sha256:{'0' * 64}"
CLUSTER = """
strategy: multi_worker_mirrored
chief: {machine: n1-standard-4, alternatives: [{machine: n2-standard-4}]}
worker:
  machine: n1-standard-8
  replicas: 2
  alternatives: [{machine: n2-standard-8}, {machine: e2-standard-8}]
"""


class Training:
    """Runs the command; each job ends as `endings` says: error code and text, step, seconds."""

    def __init__(self, vertex, files, logs):
        self.files, self.logs, self.endings = files / "job", logs, []
        self.before: Callable[[], Any] = lambda: None  # is called when a job is looked at
        (self.files / "checkpoints").mkdir(parents=True)
        # Of a checkpoint that is not complete.
        (self.files / "checkpoints" / "ckpt-99.data-00000-of-00001").touch()
        self.vertex, self._ran_s = vertex, 0
        vertex.route("GET", "{parent}/customJobs/{id}", self._get)

    def __call__(self, *argv):
        cluster = self.files / "cluster.yaml"
        cluster.write_text(CLUSTER)
        words = f"--cluster {cluster} --image {IMAGE} --project {self.vertex.project}"
        flags = "--data-dir gs://demo/d --job-dir gs://demo/job --train-steps 9"
        return main([*words.split(), "--backend", "vertex", *argv, "--", *flags.split()])

    def jobs(self):
        jobs = self.vertex.custom_jobs.items.values()
        return [json.loads(v1.CustomJob.to_json(job)) for job in jobs]

    def record(self):
        return json.loads((self.files / "attempts.json").read_text())

    def _get(self, request):
        job = self.vertex.custom_jobs.get(request)
        id = job.name.rpartition("/")[2]
        if job.state.name == "JOB_STATE_PENDING":
            job.state = v1.JobState.JOB_STATE_RUNNING
            self._log(id, "chief-0")
        elif job.start_time and not job.end_time:  # as its machines may need a moment to end
            job.end_time = job.start_time + datetime.timedelta(seconds=self._ran_s)
        elif job.state.name == "JOB_STATE_RUNNING" and self.endings:
            self._log(id, "worker-0")
            self.before()
            code, message, step, self._ran_s = (*self.endings.pop(0), 0, 0)[:4]
            if step:
                (self.files / "checkpoints" / f"ckpt-{step}.index").touch()
            job.start_time = now()
            job.error.code, job.error.message = code, message
            job.state = v1.JobState.JOB_STATE_FAILED if message else v1.JobState.JOB_STATE_SUCCEEDED
        return job

    def _log(self, id, replica):
        folder = self.logs / f"job-{id}"
        folder.mkdir(exist_ok=True)
        (folder / f"{replica}.log").write_text(f"hello\n{replica} of {id}\n" * 15)


@contextlib.contextmanager
def trainings(vertex, bucket, tmp_path, patch):
    """Makes this process's back end use them, without the pauses of the real ones."""
    for name, seconds in (("POLL_S", 0.01), ("LINES_S", 0.0), ("ERROR_S", 0.05)):
        patch.setattr(f"components.train.backends.vertex.{name}", seconds)
    logs = tmp_path / "logs"
    logs.mkdir()
    with Front(0, Entries(logs).answer) as front:
        patch.setattr(vertex_client, "URL", f"http://127.0.0.1:{front.server_port}/v2/entries:list")
        yield Training(vertex, bucket, logs)
        front.shutdown()
