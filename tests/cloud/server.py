"""Google Cloud on 127.0.0.1: Storage, Vertex AI, what a submission looks up, metadata.

`python -m tests.cloud.server WORK`, which `python -m tests.cloud` starts inside the namespaces.
Every request is a line in WORK/requests.log. What a test asks of the cloud itself, it asks of
http://127.0.0.1/loopback (see `_Cloud.http`).
"""

import json
import pathlib
import signal
import sys

from google.api_core import exceptions

from tests.cloud.entries import Entries
from tests.cloud.faults import Faults, ResetError
from tests.cloud.front import Answer, Front, serve_grpc
from tests.cloud.iam import Iam, account
from tests.cloud.machines import GRACE_S
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

    def __init__(self, work):
        self._faults, self._iam = Faults(), Iam()
        self._log = (work / "requests.log").open("w", buffering=1)
        storage = Storage(Objects(work / "buckets"), self._iam).answer
        self._vertex = LiveVertex(work, self._iam)
        self._hosts = {
            "storage.googleapis.com": storage,
            "www.googleapis.com": storage,
            "logging.googleapis.com": self._permitted(Entries(work / "logs").answer),
            "aiplatform.googleapis.com": self._permitted(self._vertex.answer),
            "us-central1-aiplatform.googleapis.com": self._permitted(self._vertex.answer),
            **hosts(self._iam),
        }

    def https(self, request):
        """Answers what is asked of Google's hosts, and notes it."""
        try:
            if request.host not in self._hosts:
                raise exceptions.NotFound(f"nothing is here for {request.host}{request.path}")
            if not request.headers.get("Authorization", "").removeprefix("Bearer").strip():
                raise exceptions.Unauthorized("Request is missing required authentication.")
            hits = self._faults.meet(str(request))
            self._vertex.late_errors += [rule.late for rule in hits if rule.late]
            answer = self._hosts[request.host](request)
            if any(rule.cut for rule in hits):
                raise ResetError(answer)
        except exceptions.GoogleAPICallError as error:
            self._log.write(f"{request} {error.code:d}\n")
            raise
        size = len(answer.content) if isinstance(answer.content, bytes) else 0
        self._log.write(f"{request} {size} {answer.status}\n")
        return answer

    def _permitted(self, handler):
        """Returns a handler that only gets calls which their callers may make."""

        def answer(request):
            self._iam.require_call(request)
            return handler(request)

        return answer

    def http(self, request):
        """The metadata server; `/loopback` is the tests' own way in.

        `PUT /loopback/iam/NAME` sets bindings (`Iam.set`), `GET` lists what was needed of them
        (`Iam.needs`), and `PUT /loopback/faults/NAME` sets rules (`Fault`). `GET /loopback/jobs`
        tells of each custom job, `POST /loopback/jobs/N/lose?replica=worker/0` (or `preempt`) does
        that to a replica's machine, and `POST /loopback/schedules/N/fire` begins a run of a
        schedule.
        """
        match request.path.strip("/").split("/"):
            case ["loopback", "iam", name] if request.method == "GET":
                return Answer(200, sorted(self._iam.needs[name]))
            case ["loopback", "iam", name]:
                self._iam.set(name, json.loads(request.body))
            case ["loopback", "faults", name]:
                self._faults.set(name, json.loads(request.body))
            case ["loopback", "schedules", number, "fire"]:
                self._vertex.fire(number)
            case ["loopback", "jobs"]:
                return Answer(200, [_facts(run) for run in self._vertex.runs.values()])
            case ["loopback", "jobs", number, how]:
                notice_s = GRACE_S if how == "preempt" else 0.0
                self._vertex.runs[number].take(request.query["replica"], notice_s)
            case _:
                return _metadata(request)
        return Answer(200)


def _facts(run):
    replicas = run.replicas.values()
    return {
        "number": run.number,
        "display_name": run.job.display_name,
        "output": run.job.job_spec.base_output_directory.output_uri_prefix,
        "state": run.job.state.name,
        "running": {each.name: each.process.pid for each in replicas if each.process},
        "events": run.events,
    }


def _metadata(request):
    """Returns a machine's metadata, above all the token of its service account."""
    email = account(request.host)[0] or _ACCOUNT
    path = request.path.removeprefix("/computeMetadata/v1/").strip("/")
    texts = {**_METADATA, "instance/service-accounts/default/email": email}
    if path.endswith("/token"):
        content = {"access_token": request.host, "expires_in": 3600, "token_type": "Bearer"}
    elif path.startswith("instance/service-accounts/") and "recursive" in request.query:
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        content = {"email": email, "aliases": ["default"], "scopes": scopes}
    elif path in texts:
        content = texts[path].encode()
    else:
        raise exceptions.NotFound(path)
    return Answer(200, content, {"Metadata-Flavor": "Google", "Content-Type": "application/text"})


def main():
    """Serves until SIGTERM."""
    work = pathlib.Path(sys.argv[1])
    cloud, tls = _Cloud(work), (str(work / "certificate.pem"), str(work / "key.pem"))
    services = ("endpoint", "job", "metadata", "model", "pipeline", "schedule")
    _grpc, port = serve_grpc(services, cloud.https, tls)
    _fronts = Front(443, cloud.https, tls, port), Front(80, cloud.http)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
