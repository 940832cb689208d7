"""Google Cloud on 127.0.0.1: Storage, Vertex AI, BigQuery, what a submission looks up, and a machine's metadata server.

`python -m tests.cloud.server WORK`, which `python -m tests.cloud` starts inside the namespaces.
Every request is a line in WORK/requests.log. What a test asks of the cloud itself, it asks of
http://127.0.0.1/loopback (see `_Cloud.http`).
"""

import json
import pathlib
import signal
import sys
from typing import Any

from google.api_core import exceptions
from google.cloud.aiplatform_v1.services import (
    endpoint_service,
    job_service,
    metadata_service,
    model_service,
    pipeline_service,
    schedule_service,
)

from tests.cloud.bigquery import BigQuery
from tests.cloud.entries import Entries
from tests.cloud.faults import Faults, ResetError
from tests.cloud.front import Answer, Front, Request, serve_grpc
from tests.cloud.iam import Iam, account
from tests.cloud.machines import GRACE_S, Run
from tests.cloud.objects import Objects
from tests.cloud.services import hosts
from tests.cloud.storage import Storage
from tests.cloud.vertex import LiveVertex

_PROJECT, _NUMBER = LiveVertex.project, "123456789"
_ACCOUNT = f"robot@{_PROJECT}.iam.gserviceaccount.com"
# After "About VM metadata", and what google-auth and TensorFlow's credentials ask for.
_METADATA = {
    "": "",
    "project/project-id": _PROJECT,
    "project/numeric-project-id": _NUMBER,
    "universe/universe-domain": "googleapis.com",
    "instance/zone": f"projects/{_NUMBER}/zones/us-central1-a",
}


class _Cloud:
    """All services behind one front."""

    def __init__(self, work: pathlib.Path) -> None:
        self._faults = Faults()
        self._log = (work / "requests.log").open("w", buffering=1)
        objects = Objects(work / "buckets")
        self._iam = Iam()
        self._storage, self._bigquery = (
            Storage(objects, self._iam),
            BigQuery(work / "tables", objects),
        )
        self._vertex, self._entries = LiveVertex(work, self._iam), Entries(work / "logs")
        self._hosts = hosts(self._iam)

    def https(self, request: Request) -> Answer:
        """REST: storage by two names, Vertex AI, and what a submission looks up."""
        try:
            cut = self._faults.meet(str(request))
            answer = self._answer(request)
            if cut:
                raise ResetError(answer)
        except exceptions.GoogleAPICallError as error:
            self._log.write(f"{request} {error.code:d}\n")
            raise
        size = len(answer.content) if isinstance(answer.content, bytes) else 0
        self._log.write(f"{request} {size} {answer.status}\n")
        return answer

    def _answer(self, request: Request) -> Answer:
        if request.host in ("storage.googleapis.com", "www.googleapis.com"):
            return self._storage.answer(request)
        if request.host == "bigquery.googleapis.com":
            return self._bigquery.answer(request)
        if request.host == "logging.googleapis.com":
            return self._entries.answer(request)
        if answer := self._hosts.get(request.host):
            return answer(request)
        if "aiplatform" in request.host:
            self._iam.require_call(request)
            return self._vertex.answer(request)
        raise exceptions.NotFound(f"nothing is here for {request.host}{request.path}")

    def http(self, request: Request) -> Answer:
        """The metadata server; `/loopback` is the tests' own way in.

        `PUT /loopback/iam/NAME` sets bindings (`Iam.set`), and `PUT /loopback/faults/NAME` rules
        (`Fault`); `GET /loopback/jobs` tells of each custom job,
        `POST /loopback/jobs/N/lose?replica=worker/0` (or `preempt`, and `&last=1`) does that to a
        replica's machine, `PUT /loopback/stockouts` says by machine type how many jobs find none of
        it, and `POST /loopback/schedules/N/fire` begins a run of a schedule, whose time has come.
        """
        match request.path.strip("/").split("/"):
            case ["loopback", "iam", name]:
                self._iam.set(name, json.loads(request.body))
                return Answer(200)
            case ["loopback", "faults", name]:
                self._faults.set(name, json.loads(request.body))
                return Answer(200)
            case ["loopback", "schedules", number, "fire"]:
                self._vertex.fire(number)
                return Answer(200)
            case ["loopback", "jobs"]:
                return Answer(200, [_told(run) for run in self._vertex.runs.values()])
            case ["loopback", "stockouts"]:
                self._vertex.stockouts.update(json.loads(request.body))
                return Answer(200)
            case ["loopback", "jobs", number, "lose" | "preempt" as what]:
                notice_s, last = GRACE_S if what == "preempt" else 0.0, "last" in request.query
                self._vertex.runs[number].take(request.query["replica"], notice_s, last=last)
                return Answer(200)
        return _metadata(request)


def _told(run: Run) -> dict[str, Any]:
    running = {
        name: replica.process.pid for name, replica in run.replicas.items() if replica.process
    }
    output = run.job.job_spec.base_output_directory.output_uri_prefix
    about = {"number": run.number, "display_name": run.job.display_name, "output": output}
    return {**about, "state": run.job.state.name, "running": running, "events": run.events}


def _metadata(request: Request) -> Answer:
    """What a machine is told of itself, above all the token of its service account."""
    email = account(request.host)[0] or _ACCOUNT
    path = request.path.removeprefix("/computeMetadata/v1/").strip("/")
    if path.endswith("/token"):
        content: Any = {"access_token": request.host, "expires_in": 3600, "token_type": "Bearer"}
    elif path.startswith("instance/service-accounts/") and "recursive" in request.query:
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        content = {"email": email, "aliases": ["default"], "scopes": scopes}
    elif path == "instance/service-accounts/default/email":
        content = email.encode()
    elif path in _METADATA:
        content = _METADATA[path].encode()
    else:
        raise exceptions.NotFound(path)
    return Answer(200, content, {"Metadata-Flavor": "Google", "Content-Type": "application/text"})


def main() -> None:
    """Serves until SIGTERM."""
    work = pathlib.Path(sys.argv[1])
    cloud, tls = _Cloud(work), (str(work / "certificate.pem"), str(work / "key.pem"))
    transports = [
        endpoint_service.transports.EndpointServiceGrpcTransport,
        job_service.transports.JobServiceGrpcTransport,
        metadata_service.transports.MetadataServiceGrpcTransport,
        model_service.transports.ModelServiceGrpcTransport,
        pipeline_service.transports.PipelineServiceGrpcTransport,
        schedule_service.transports.ScheduleServiceGrpcTransport,
    ]
    _grpc, port = serve_grpc(transports, cloud.https, tls)
    _fronts = Front(443, cloud.https, tls, port), Front(80, cloud.http)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
