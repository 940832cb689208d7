"""Vertex AI in the loopback cloud: the resources of `tests/vertex`, with custom jobs and pipeline jobs that really run."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import threading
import urllib.parse
from typing import Any

from google.cloud import aiplatform_v1 as v1

from tests.cloud.faults import Refused
from tests.cloud.front import Answer, Request
from tests.cloud.machines import Run
from tests.cloud.metadata import PROJECT

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from vertex.server import Server

_State = v1.PipelineState


class Vertex:
    """One project in one region.

    Attributes:
      runs: The custom jobs by number.
    """

    def __init__(self, work: pathlib.Path) -> None:
        self.runs: dict[str, Run] = {}
        self._work, self._server = work, Server(PROJECT)
        self._pipelines: dict[str, subprocess.Popen] = {}
        self._server.route("POST", "{parent}/customJobs", self._create_job)
        self._server.route("POST", "{parent}/pipelineJobs", self._create_pipeline)
        self._server.route("POST", "{parent}/pipelineJobs/{id}:cancel", self._cancel_pipeline)

    def answer(self, request: Request) -> Answer:
        """The answer of the API.

        Raises:
          Refused: With the API's status and message.
        """
        target = f"{request.path}?{urllib.parse.urlencode(request.query)}"
        status, text = self._server.answer(request.method, target, request.body.decode())
        content = json.loads(text)
        if status != 200:
            raise Refused(status, content["error"]["message"])
        return Answer(200, content)

    def _create_job(self, **request: Any) -> v1.CustomJob:
        job = self._server.custom_jobs.create(**request)
        number = job.name.rpartition("/")[2]
        self.runs[number] = Run(job, self._work / "logs" / f"job-{number}", pathlib.Path("/etc/hosts"))
        return job

    def _create_pipeline(self, **request: Any) -> v1.PipelineJob:
        job = self._server.pipeline_jobs.create(**request)
        logs = self._work / "logs" / job.name.rpartition("/")[2]
        logs.mkdir(parents=True)
        (logs / "pipeline.json").write_text(v1.PipelineJob.to_json(job))
        with (logs / "pipeline.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-u", "-m", "tests.cloud.pipeline", str(logs / "pipeline.json")],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._pipelines[job.name] = process
        threading.Thread(target=self._follow, args=(job, process, logs), daemon=True).start()
        return job

    def _follow(self, job: v1.PipelineJob, process: subprocess.Popen, logs: pathlib.Path) -> None:
        code = process.wait()
        cancelled = job.state == _State.PIPELINE_STATE_CANCELLING
        if cancelled:
            job.state = _State.PIPELINE_STATE_CANCELLED
        elif code:
            job.error.code, job.error.message = 9, f"a task failed; see {logs / 'pipeline.log'}"
            job.state = _State.PIPELINE_STATE_FAILED
        else:
            job.state = _State.PIPELINE_STATE_SUCCEEDED

    def _cancel_pipeline(self, *, parent: str, id: str, **_: Any) -> None:
        name = f"{parent}/pipelineJobs/{id}"
        self._server.pipeline_jobs.items[name].state = _State.PIPELINE_STATE_CANCELLING
        self._pipelines[name].terminate()
