"""One port for all of Google Cloud: REST and storage by HTTPS, and Google's clients by gRPC.

A handler answers a `Request`, or raises one of google.api_core.exceptions.

A connection whose TLS greeting offers HTTP/2 is passed on, still encrypted, to a gRPC server. That
server knows no service: it turns each call into the REST request that Google's own client would
send (the generated REST transports know how) and gives it to the same handler.
"""

import contextlib
import http.server
import importlib
import json
import pathlib
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from concurrent import futures
from typing import Any, NamedTuple
from unittest import mock

import grpc
from google.api_core import exceptions, path_template
from google.longrunning import operations_pb2
from google.protobuf import json_format

from tests.cloud.faults import ResetError


class Request(NamedTuple):
    """Request of a client."""

    method: str
    host: str
    path: str  # still quoted
    query: dict[str, str]  # decoded; the last of equal names
    headers: Any  # names are found in any case
    body: bytes

    def __str__(self):
        query = urllib.parse.unquote(urllib.parse.urlencode(self.query))
        return f"{self.method} {self.host}{self.path}?{query}"


class Answer(NamedTuple):
    """HTTP status, content (bytes, an iterator of them, or what is sent as JSON), and headers."""

    status: int
    content: Any = b""
    headers: dict[str, str] = {}  # noqa: RUF012 (never changed)


class _Requests(http.server.BaseHTTPRequestHandler):
    """Reads a request, whatever its transfer encoding, and hands it to the server's `answer`."""

    protocol_version = "HTTP/1.1"
    # One packet an answer: a second would wait 40 ms for the client's delayed acknowledgement.
    wbufsize = -1

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        host = self.headers.get("Host", "")
        request = Request(self.command, host, url.path, query, self.headers, self._body())
        try:
            self._send(self.server.answer(request))
        except exceptions.GoogleAPICallError as error:
            code = int(error.code)
            wait_s = getattr(error, "retry_after_s", 0)
            headers = {"Retry-After": str(wait_s)} if wait_s else {}
            # An answer 304 has no content.
            about = b"" if code == 304 else {"error": {"code": code, "message": error.message}}
            self._send(Answer(code, about, headers))
        except ResetError as reset:
            if reset.answer:
                self._send(reset.answer, part=0.5)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _send(self, answer, part=1.0):
        """Sends an answer, or all that says how long it is and only a part of its content."""
        status, content, headers = answer
        if isinstance(content, Iterator):
            self.send_response(status)
            self.send_header("Connection", "close")
            self.end_headers()
            for chunk in content:
                self.wfile.write(chunk)
                self.wfile.flush()
            return
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers = {**headers, "Content-Type": "application/json"}
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(content)}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: int(part * len(content))])
        self.wfile.flush()

    def _body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def handle_expect_100(self):
        is_expected = super().handle_expect_100()
        self.wfile.flush()  # or curl waits a second before it sends what TensorFlow writes
        return is_expected

    def log_message(self, *_):
        pass


class Front(http.server.ThreadingHTTPServer):
    """Serves a handler on a port of 127.0.0.1: plain, or with a certificate over TLS and gRPC."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, answer, tls=None, grpc_port=0):
        super().__init__(("127.0.0.1", port), _Requests)
        self.answer, self._grpc, self._tls = answer, ("127.0.0.1", grpc_port), None
        if tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*tls)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def finish_request(self, request, client_address):
        """Answers a client, in a thread of its own."""
        if self._tls:
            if self._grpc[1] and b"\x02h2" in request.recv(4096, socket.MSG_PEEK):
                grpc_server = socket.create_connection(self._grpc)
                threading.Thread(target=_forward, args=(grpc_server, request), daemon=True).start()
                _forward(request, grpc_server)
                return
            request = self._tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, *_):
        pass  # a client that was killed


def _forward(source, target):
    """Passes bytes on until either side ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def serve_grpc(services, answer, tls):
    """Serves what Google's clients of services such as `job` can ask. Returns server and port."""
    handlers = {}
    for service in services:
        package = f"google.cloud.aiplatform_v1.services.{service}_service.transports"
        name = f"{service.title()}Service"
        transport = getattr(importlib.import_module(package), f"{name}GrpcTransport")
        rest = importlib.import_module(f"{package}.rest_base")
        base = getattr(rest, f"_Base{name}RestTransport")
        channel = mock.create_autospec(grpc.Channel, instance=True)
        with mock.patch("grpc.intercept_channel", lambda channel, _: channel):
            transport(channel=channel)  # it tells the channel of all its methods
        for [method], functions in channel.unary_unary.call_args_list:
            serialize = functions["request_serializer"]
            # Else it is a method of IAM, or of another service that all have.
            if hasattr(serialize, "__self__"):
                call = getattr(base, f"_Base{method.rpartition('/')[2]}")
                reply = functions["response_deserializer"].__self__
                handlers[method] = _unary(
                    call._get_http_options(), serialize.__self__, reply, answer
                )
    options = [{"method": "get", "uri": "/v1/{name=projects/**}"}]
    handlers["/google.longrunning.Operations/GetOperation"] = _unary(
        options, operations_pb2.GetOperationRequest, operations_pb2.Operation, answer
    )

    class Services(grpc.GenericRpcHandler):
        def service(self, details):
            return handlers.get(details.method)

    certificate, key = (pathlib.Path(path).read_bytes() for path in tls)
    server = grpc.server(futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((Services(),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    server.start()
    return server, port


def _unary(options, request, reply, answer):
    def call(message, context):
        message = getattr(message, "_pb", message)
        sent = path_template.transcode(options, message)
        query = json_format.MessageToDict(sent["query_params"])
        query = {name: str(value) for name, value in query.items()}
        body = json_format.MessageToJson(sent["body"]) if "body" in sent else ""
        headers = {"Authorization": dict(context.invocation_metadata()).get("authorization", "")}
        url = "aiplatform.googleapis.com", sent["uri"]
        try:
            answered = answer(Request(sent["method"].upper(), *url, query, headers, body.encode()))
        except exceptions.GoogleAPICallError as error:
            is_login = error.code == 401  # has no code of gRPC's in the exception
            unnamed = grpc.StatusCode.UNAUTHENTICATED if is_login else grpc.StatusCode.UNKNOWN
            context.abort(error.grpc_status_code or unnamed, error.message)
        except ResetError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        parsed = reply.pb(reply()) if hasattr(reply, "pb") else reply()
        json_format.ParseDict(answered.content, parsed, ignore_unknown_fields=True)
        return parsed.SerializeToString()

    read = getattr(request, "deserialize", None) or request.FromString
    return grpc.unary_unary_rpc_method_handler(call, request_deserializer=read)
