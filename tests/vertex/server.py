"""Vertex AI on 127.0.0.1: its REST API over resources in memory, for Google's own clients.

    with Server() as vertex:
        aiplatform.init(project=vertex.project, location=vertex.location, api_endpoint=vertex.url,
                        api_transport="rest", credentials=AnonymousCredentials())

A kind of resource that is created, got, listed and cancelled is one `Collection` in `Server.__init__`; one with ways of
its own adds them with `server.route`. Requests are parsed as the API's own messages, so an unknown field is refused.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any, Self

import proto
from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from google.protobuf import json_format
from vertex.collection import Collection
from vertex.models import Models

Handler = Callable[..., Any]
_PARTS = {"parent": r"projects/[^/]+/locations/[^/]+", "id": r"[^/:@]+", "version": r"[^/:@]+"}


class Server:
    """Serves one project in one location; other projects are forbidden. Clients take `url` as `api_endpoint`."""

    def __init__(self, project: str = "demo-project", location: str = "us-central1") -> None:
        self.project, self.location = project, location
        self.parent = f"projects/{project}/locations/{location}"
        self._routes: list[tuple[str, re.Pattern[str], Handler]] = []
        self._lock = threading.Lock()
        self.custom_jobs = Collection(
            self,
            "customJobs",
            v1.CustomJob,
            v1.ListCustomJobsResponse,
            created=v1.JobState.JOB_STATE_PENDING,
            cancelled=v1.JobState.JOB_STATE_CANCELLED,
        )
        self.pipeline_jobs = Collection(
            self,
            "pipelineJobs",
            v1.PipelineJob,
            v1.ListPipelineJobsResponse,
            created=v1.PipelineState.PIPELINE_STATE_RUNNING,
            cancelled=v1.PipelineState.PIPELINE_STATE_CANCELLED,
        )
        self.models = Models(self)
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def route(self, method: str, pattern: str, handler: Handler) -> None:
        """Lets `handler` answer requests for a path behind `/v1/`, before any handler that was given earlier.

        It gets the pattern's parts as named arguments, with `body` (JSON text) and `query`, and returns a message of the
        API, or raises one of google.api_core.exceptions.
        """
        for name, part in _PARTS.items():
            pattern = pattern.replace(f"{{{name}}}", f"(?P<{name}>{part})")
        self._routes.insert(0, (method, re.compile(f"/v1(?:beta1)?/{pattern}"), handler))

    def answer(self, method: str, target: str, body: str) -> tuple[int, str]:
        """HTTP status and JSON text that answer a request."""
        url = urllib.parse.urlsplit(target)
        path = urllib.parse.unquote(url.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        try:
            with self._lock:
                return 200, _json(self._dispatch(method, path, query, body))
        except json_format.ParseError as error:
            return _refusal(exceptions.InvalidArgument(str(error)))
        except exceptions.GoogleAPICallError as error:
            return _refusal(error)

    def _dispatch(self, method: str, path: str, query: dict[str, str], body: str) -> Any:
        for known, pattern, handler in self._routes:
            if known == method and (match := pattern.fullmatch(path)):
                if match["parent"] != self.parent:
                    raise exceptions.PermissionDenied(f"Permission denied on {match['parent']}")
                return handler(**match.groupdict(), query=query, body=body)
        raise exceptions.MethodNotImplemented(f"no route {method} {path}")


def _json(message: Any) -> str:
    if isinstance(message, proto.Message):
        message = type(message).pb(message)
    return json_format.MessageToJson(message) if message is not None else "{}"


def _refusal(error: exceptions.GoogleAPICallError) -> tuple[int, str]:
    told = {"code": int(error.code), "message": error.message, "status": error.grpc_status_code.name}
    return int(error.code), json.dumps({"error": told})


def _handler(server: Server) -> type[http.server.BaseHTTPRequestHandler]:
    class Requests(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet an answer: a second one would wait 40 ms for the client's delayed acknowledgement

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, text = server.answer(self.command, self.path, body)
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_PATCH = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    return Requests
