"""Runs one pipeline job as Vertex AI would, task by task.

In `python -m tests.cloud.pipeline JOB.json` JOB.json is the resource that was created. kfp.local
walks the graph of its spec; what it does otherwise than Vertex AI is put right here, in four
places:

* a run has the name of its resource;
* artifacts get gs:// URIs, which the steps see as files below /gcs;
* Google's own components run too: their launchers are Python modules (only their waiting of 20 s is
  made shorter, as is that before a task is tried again);
* SIGTERM cancels: the running task is told to stop, and no other starts but the exit handler.
"""

import contextlib
import json
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import warnings

from kfp import components, local
from kfp.local import executor_input_utils, logging_utils, subprocess_task_handler

_LAUNCHERS = "google_cloud_pipeline_components.container.v1."
_IMPATIENT = (
    "import runpy, sys, "
    "google_cloud_pipeline_components.container.v1.gcp_launcher.job_remote_runner as jobs;"
    "jobs._POLLING_INTERVAL_IN_SECONDS = 0.5; sys.argv = sys.argv[1:];"
    "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
_STATUS = r'("pipeline_job_resource_name": )"[^"]*"(.*?"state": )"([A-Z]+)"'


class _Tasks:
    """The tasks of this job, one after the other."""

    def __init__(self, job):
        self._job, self._cancelled = job, False
        self._running = None  # what a cancellation ends

    def run(self, full_command, env_vars=None):
        """Takes the place of kfp's `run_local_subprocess`. Returns the task's exit code."""
        command = list(full_command)
        launcher = next((i for i, part in enumerate(command) if part.startswith(_LAUNCHERS)), None)
        if launcher is not None:
            command = [sys.executable, "-u", "-c", _IMPATIENT, *command[launcher:]]
        is_exit_handler = any('"pipeline_job_resource_name"' in part for part in command)
        if self._cancelled and not is_exit_handler:
            return 1
        state = "CANCELLED" if self._cancelled else r"\3"
        told = rf'\1"{self._job}"\2"{state}"'
        command = [re.sub(_STATUS, told, part, flags=re.DOTALL) for part in command]
        process = subprocess.Popen(command, env={**os.environ, **(env_vars or {})})
        self._running = None if is_exit_handler else process
        process.wait()
        return 1 if self._cancelled and not is_exit_handler else process.returncode

    def cancel(self, *_):
        """Tells the running task to stop, and lets no other start."""
        self._cancelled = True
        if self._running:
            self._running.terminate()  # nothing, once it has ended


def _put_right(tasks, job_id):
    """Patches kfp.local."""
    handler = subprocess_task_handler.SubprocessTaskHandler
    handler.validate_not_container_component = lambda *_: None
    handler.validate_image = lambda *_: None
    subprocess_task_handler.run_local_subprocess = tasks.run

    # Of tasks at once each would take the log from the others.
    logging_utils.local_logger_context = contextlib.nullcontext
    logging.basicConfig(
        stream=sys.stdout,
        level=logging.INFO,
        format="%(asctime)s.%(msecs)03d - %(levelname)s - %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
    )
    executor_input_utils.get_local_pipeline_resource_name = lambda _: job_id

    make = executor_input_utils.artifact_type_schema_to_artifact_list
    executor_input_utils.artifact_type_schema_to_artifact_list = lambda *, task_root, **rest: make(
        task_root=re.sub("^/gcs/", "gs://", task_root), **rest
    )


def main():
    """Runs the job; ends with an error when a task failed."""
    path = pathlib.Path(sys.argv[1])
    job = json.loads(path.read_text())
    root = re.sub("^gs://", "/gcs/", job["runtimeConfig"]["gcsOutputDirectory"])
    tasks = _Tasks(job["name"])
    _put_right(tasks, job["name"].rpartition("/")[2])
    signal.signal(signal.SIGTERM, tasks.cancel)
    warnings.simplefilter("ignore")
    local.init(
        local.SubprocessRunner(use_venv=False),
        pipeline_root=f"{root}/123456789",
        enable_caching=True,
        cache_root=str(path.parents[1] / "cache"),
    )
    spec = job["pipelineSpec"]
    kinds = spec["root"]["inputDefinitions"]["parameters"]
    given = {  # numbers travel as floating-point
        name: int(value) if kinds[name]["parameterType"] == "NUMBER_INTEGER" else value
        for name, value in job["runtimeConfig"]["parameterValues"].items()
    }
    text = json.dumps(spec).replace('"backoffDuration": "60s"', '"backoffDuration": "1s"')
    components.load_component_from_text(text)(**given)


if __name__ == "__main__":
    main()
