"""Google Cloud on 127.0.0.1: Storage, Vertex AI, Resource Manager and the metadata server of a machine.

`python -m tests.cloud.server WORK`, which `python -m tests.cloud` starts inside the namespaces. Every request is a line
in WORK/requests.log. What a test asks of the cloud itself, it asks of http://127.0.0.1/loopback (see `_Control`).
"""

from __future__ import annotations

import json
import pathlib
import signal
import sys
from typing import Any

from google.cloud.aiplatform_v1.services import job_service, model_service, pipeline_service
from google.cloud.resourcemanager_v3.services import projects

from tests.cloud import metadata
from tests.cloud.faults import Faults, Refused
from tests.cloud.front import Answer, Front, Request, serve_grpc
from tests.cloud.objects import Objects
from tests.cloud.storage import Storage
from tests.cloud.vertex import Vertex


class _Cloud:
    """All services behind one front."""

    def __init__(self, work: pathlib.Path) -> None:
        self.faults = Faults()
        self._log = (work / "requests.log").open("a", buffering=1)
        self._storage = Storage(Objects(work / "buckets"))
        self.vertex = Vertex(work)

    def https(self, request: Request) -> Answer:
        """REST: storage by two names, Vertex AI, and the little that is asked of Resource Manager."""
        try:
            self.faults.meet(str(request))
            answer = self._answer(request)
        except Refused as error:
            self._log.write(f"{request} {error.args[0]}\n")
            raise
        self._log.write(f"{request} {answer.status}\n")
        return answer

    def _answer(self, request: Request) -> Answer:
        if request.path.startswith("/v3/projects/"):
            name = request.path.rpartition("/")[2]
            return Answer(200, {"name": f"projects/{metadata.NUMBER}", "projectId": metadata.PROJECT, "etag": name})
        if request.host in ("storage.googleapis.com", "www.googleapis.com"):
            return self._storage.answer(request)
        if "aiplatform" in request.host:
            return self.vertex.answer(request)
        raise Refused(404, f"nothing is here for {request.host}{request.path}")

    def http(self, request: Request) -> Answer:
        """The metadata server; `/loopback` is the tests' own way in.

        `PUT /loopback/faults/NAME` sets rules (`Fault`), `GET /loopback/faults` tells how often each was met;
        `GET /loopback/jobs` tells of each custom job, `POST /loopback/jobs/N/lose?replica=worker/0` (or `preempt`)
        does that to a replica's machine.
        """
        match request.path.strip("/").split("/"):
            case ["loopback", "faults", name]:
                self.faults.set(name, json.loads(request.body))
                return Answer(200)
            case ["loopback", "faults"]:
                return Answer(200, self.faults.met())
            case ["loopback", "jobs"]:
                return Answer(200, [self._told(run) for run in self.vertex.runs.values()])
            case ["loopback", "jobs", number, "lose" | "preempt" as what]:
                getattr(self.vertex.runs[number], what)(request.query["replica"])
                return Answer(200)
        return metadata.answer(request)

    def _told(self, run: Any) -> dict[str, Any]:
        running = {name: replica.process.pid for name, replica in run.replicas.items() if replica.process}
        output = run.job.job_spec.base_output_directory.output_uri_prefix
        about = {"number": run.number, "display_name": run.job.display_name, "output": output}
        return {**about, "state": run.job.state.name, "running": running, "events": run.events}


def main() -> None:
    """Serves until SIGTERM."""
    work = pathlib.Path(sys.argv[1])
    cloud, tls = _Cloud(work), (str(work / "certificate.pem"), str(work / "key.pem"))
    transports = [
        job_service.transports.JobServiceGrpcTransport,
        model_service.transports.ModelServiceGrpcTransport,
        pipeline_service.transports.PipelineServiceGrpcTransport,
        projects.transports.ProjectsGrpcTransport,
    ]
    _grpc, port = serve_grpc(transports, cloud.https, tls)
    _fronts = Front(443, cloud.https, tls, port), Front(80, cloud.http)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
