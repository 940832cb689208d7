"""Vertex AI: its REST API over resources in memory, for Google's own clients.

A kind of resource that is created, got, listed and cancelled is one `Collection` in
`Vertex.__init__`; one with ways of its own adds them with `Vertex.route`. Requests are parsed as
the API's own messages, so an unknown field is refused.
"""

import datetime
import re
import threading
import time
import urllib.parse

from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2, json_format
from google.rpc import code_pb2

from pipelines.local.progress import ANSI, step_event
from tests.cloud.collection import Collection
from tests.cloud.endpoints import Batches, Endpoints
from tests.cloud.front import Answer, Request
from tests.cloud.iam import denied
from tests.cloud.machines import Run
from tests.cloud.models import Models
from tests.programs import start_python

_PARENT, _ID = r"(projects/[^/]+/locations/[^/]+)", "[^/:@]+"
_State = v1.PipelineState
_DEFAULT_ACCOUNT = "123456789-compute@developer.gserviceaccount.com"
_N2_QUOTA = "aiplatform.googleapis.com/custom_model_training_n2_cpus"


class Vertex:
    """One project in one location; other projects are forbidden. Jobs are only noted here.

    Attributes:
      polls: How often an operation is seen running before its end; its begin never shows the end.
      late_errors: Codes of google.rpc.Code with which the next operations end; they have been done
        all the same.
    """

    polls = 0
    project, location = "demo-project", "us-central1"
    parent = f"projects/{project}/locations/{location}"

    def __init__(self):
        self._routes = []
        self._lock = threading.Lock()
        self.late_errors = []
        self._operations = {}  # By name, how each is seen, one after the other.
        self.custom_jobs = Collection(self.route, v1.CustomJob, "JOB_STATE_PENDING")
        self.pipeline_jobs = Collection(self.route, v1.PipelineJob, "PIPELINE_STATE_RUNNING")
        self.schedules = Collection(self.route, v1.Schedule, "ACTIVE")
        self.models = Models(self.route)
        self.endpoints = Endpoints(self.route, self.models)
        self.batches = Batches(self.route, self.models, self.endpoints)
        self.route("GET", r"{parent}/\w+/{id}/operations/\d+", self._get_operation)

    def route(self, method, pattern, handler):
        """Lets `handler` answer requests for a path behind `/v1/`, before earlier handlers.

        It gets the `Request`, whose path begins behind that. It returns a message of the API, or
        raises one of google.api_core.exceptions.
        """
        pattern = pattern.replace("{parent}", _PARENT).replace("{id}", _ID)
        self._routes.insert(0, (method, re.compile(pattern), handler))

    def answer(self, request):
        """The answer of the API."""
        path = re.sub("^/(v1|v1beta1|ui)/", "", urllib.parse.unquote(request.path))
        for method, pattern, handler in self._routes:
            if method == request.method and (match := pattern.fullmatch(path)):
                if match[1] != self.parent:
                    raise exceptions.PermissionDenied(f"Permission denied on {match[1]}")
                try:
                    with self._lock:
                        message = handler(request._replace(path=path))
                        is_begun = method != "GET" and isinstance(message, operations_pb2.Operation)
                        if is_begun:
                            message = self._begin(message)
                        message = json_format.MessageToDict(getattr(message, "_pb", message))
                except json_format.ParseError as error:
                    raise exceptions.InvalidArgument(str(error)) from error
                return Answer(200, message)
        raise exceptions.MethodNotImplemented(f"no route {request.method} {path}")

    def _begin(self, operation):
        """Keeps how an operation will end; returns it as it is meanwhile."""
        if self.late_errors:
            code = self.late_errors.pop(0)
            operation.error.code, operation.error.message = code, "a fault that came late"
        operation.done = True
        running = operations_pb2.Operation(name=operation.name)
        self._operations[operation.name] = [running] * self.polls + [operation]
        return running

    def _get_operation(self, request):
        if request.path not in self._operations:
            raise exceptions.NotFound(request.path)
        seen = self._operations[request.path]
        return seen.pop(0) if seen[1:] else seen[0]


class LiveVertex(Vertex):
    """Custom jobs and pipeline jobs really run; `runs` has the custom jobs by number.

    The project has no quota for machines of the family N2.
    """

    polls = 1

    def __init__(self, work, iam):
        super().__init__()
        self._iam = iam
        self.endpoints.folders["gs://"] = "/gcs/"
        self.runs = {}
        self._logs = work / "logs"
        self._pipelines = {}
        self._makers = {}  # By name of a schedule the headers of who made it.
        self.route("POST", "{parent}/customJobs", self._create_job)
        self.route("POST", "{parent}/customJobs/{id}:cancel", self._cancel_job)
        self.route("POST", "{parent}/schedules", self._create_schedule)
        self.route("POST", "{parent}/pipelineJobs", self._create_pipeline)
        self.route("POST", "{parent}/pipelineJobs/{id}:cancel", self._cancel_pipeline)
        self.route("GET", "{parent}/pipelineJobs/{id}", self._get_pipeline)

    def _create_job(self, request):
        account = v1.CustomJob.from_json(request.body).job_spec.service_account
        # Without an account it acts as Vertex AI's own agent, which may do what a job does.
        environment = self._iam.start_as(request, account) if account else {}
        job = self.custom_jobs.create(request)
        pools = job.job_spec.worker_pool_specs
        if any(pool.machine_spec.machine_type.startswith("n2-") for pool in pools):
            del self.custom_jobs.items[job.name]
            raise exceptions.TooManyRequests(f"quota metrics exceed quota limits: {_N2_QUOTA}")
        run = Run(job, self._logs, environment)
        self.runs[run.number] = run
        return job

    def _cancel_job(self, request):
        answer = self.custom_jobs.cancel(request)
        job = self.custom_jobs.get(request)
        if not job.end_time:
            job.state = v1.JobState.JOB_STATE_CANCELLING  # Its replicas save.
        return answer

    def fire(self, number):
        """Begins a run of a schedule; its id is the pipeline's name with a date and time."""
        with self._lock:
            schedule = self.schedules.items[f"{self.parent}/schedules/{number}"]
            job = schedule.create_pipeline_job_request.pipeline_job
            query = {"pipelineJobId": f"training-{number}-{time.time_ns()}"}
            body = v1.PipelineJob.to_json(job).encode()
            maker = self._makers[schedule.name]
            path = f"{self.parent}/pipelineJobs"
            self._create_pipeline(Request("POST", "", path, query, maker, body))

    def _create_schedule(self, request):
        """Adds a schedule; that its runs are its maker's, as if sent by them, is a guess."""
        schedule = self.schedules.create(request)
        self._makers[schedule.name] = dict(request.headers)
        return schedule

    def _get_pipeline(self, request):
        """The job with what its tasks do, by the log of kfp.local."""
        job = self.pipeline_jobs.get(request)
        tasks = []  # of a loop several have one name
        last = ""  # line of a task's: that Vertex AI has it as the error of a task is a guess
        log = self._logs / job.name.rpartition("/")[2] / "pipeline.log"
        for line in log.read_text(errors="replace").splitlines():
            text = ANSI.sub("", line)
            if event := step_event(text[11:]):  # behind the date
                name, state = event
                begun = {"task_name": name, "state": "RUNNING"}
                if state == "running" or begun not in tasks:
                    tasks.append(begun)
                if state != "running":
                    at = datetime.datetime.fromisoformat(text[:23]).astimezone()
                    state = {"cached": "SKIPPED"}.get(state, state.upper())
                    error = {"message": last} if state == "FAILED" else None
                    tasks[tasks.index(begun)] = {
                        "task_name": name, "state": state, "end_time": at, "error": error
                    }  # fmt: skip
            last = line.strip() or last
        job.job_detail.task_details = tasks
        return job

    def _create_pipeline(self, request):
        account = v1.PipelineJob.from_json(request.body).service_account or _DEFAULT_ACCOUNT
        environment = self._iam.start_as(request, account)
        job = self.pipeline_jobs.create(request)
        logs = self._logs / job.name.rpartition("/")[2]
        logs.mkdir(parents=True)
        actor = self._iam.caller(request, account)
        if refusal := self._refusal(actor, job.runtime_config.gcs_output_directory):
            job.error.code, job.error.message = code_pb2.PERMISSION_DENIED, refusal
            job.state = _State.PIPELINE_STATE_FAILED
            (logs / "pipeline.log").touch()
            return job
        (logs / "pipeline.json").write_text(v1.PipelineJob.to_json(job))
        command = ["-m", "tests.cloud.pipeline", logs / "pipeline.json"]
        environment["PYTHONUNBUFFERED"] = "1"
        with (logs / "pipeline.log").open("wb") as log:
            process = start_python(*command, stdout=log, start_new_session=True, env=environment)
        self._pipelines[job.name], job.state = process, _State.PIPELINE_STATE_PENDING
        threading.Thread(target=self._follow, args=(job, process, logs), daemon=True).start()
        return job

    def _refusal(self, actor, folder):
        """Returns why a run that acts as an account fails at once, or nothing.

        After threads 1880 of googleapis/python-aiplatform and 60 of statmike/vertex-ai-mlops.
        """
        bucket = "/".join(folder.split("/")[:3])
        writes = [f"storage.objects.{verb}" for verb in ("get", "create")]
        why, missing = "", [each for each in writes if not self._iam.has(actor, each, bucket)]
        if not self._iam.has(actor, "aiplatform.metadataStores.get", f"projects/{self.project}"):
            why = denied("aiplatform.metadataStores.get", f"{self.parent}/metadataStores/default")
        elif missing:
            why = f"Service account `{actor[0]}` does not have `[{', '.join(missing)}]` IAM "
            why += f'permission(s) to the bucket "{bucket[5:]}".'
        return f"Failed to create pipeline job. Error: {why}" if why else ""

    def _follow(self, job, process, logs):
        time.sleep(0.5)  # Nothing is known of its steps yet.
        if job.state == _State.PIPELINE_STATE_PENDING:
            job.state = _State.PIPELINE_STATE_RUNNING
        code = process.wait()
        if job.state == _State.PIPELINE_STATE_CANCELLING:
            job.state = _State.PIPELINE_STATE_CANCELLED
        elif code:
            job.error.code, job.error.message = 9, f"a task failed; see {logs / 'pipeline.log'}"
            job.state = _State.PIPELINE_STATE_FAILED
        else:
            job.state = _State.PIPELINE_STATE_SUCCEEDED

    def _cancel_pipeline(self, request):
        job = self.pipeline_jobs.get(request)
        job.state = _State.PIPELINE_STATE_CANCELLING
        self._pipelines[job.name].terminate()
        return empty_pb2.Empty()
