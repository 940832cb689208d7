"""One port for all of Google Cloud: HTTPS for REST and storage, gRPC for Google's clients, plain HTTP for metadata.

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
from collections.abc import Callable, Iterable
from concurrent import futures
from typing import Any, NamedTuple
from unittest import mock

import grpc
from google.api_core import exceptions, path_template
from google.protobuf import json_format

from tests.cloud.faults import ResetError


class Request(NamedTuple):
    """What was asked."""

    method: str
    host: str
    path: str  # still quoted
    query: dict[str, str]  # decoded; the last of equal names
    headers: Any  # names are found in any case
    body: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.host}{self.path}?{urllib.parse.unquote(urllib.parse.urlencode(self.query))}"


class Answer(NamedTuple):
    """HTTP status, content (bytes, or what is sent as JSON), and headers."""

    status: int
    content: Any = b""
    headers: dict[str, str] = {}  # noqa: RUF012 (never changed)


Handler = Callable[[Request], Answer]


class _Requests(http.server.BaseHTTPRequestHandler):
    """Reads a request, whatever its transfer encoding, and hands it to the server's `answer`."""

    protocol_version = "HTTP/1.1"
    wbufsize = (
        -1
    )  # one packet an answer: a second would wait 40 ms for the client's delayed acknowledgement

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        asked = Request(
            self.command, self.headers.get("Host", ""), url.path, query, self.headers, self._body()
        )
        lost = False
        try:
            status, content, headers = self.server.answer(asked)
        except exceptions.GoogleAPICallError as error:
            status = int(error.code)
            content, headers = {"error": {"code": status, "message": error.message}}, {}
        except ResetError as reset:
            lost = True
            status, content, headers = reset.answer or (0, b"", {})
        if not isinstance(content, bytes):
            content, headers = (
                json.dumps(content).encode(),
                {**headers, "Content-Type": "application/json"},
            )
        half = len(content) // 2 if lost else len(content)
        if status:
            self._send(status, headers | {"Content-Length": str(len(content))}, content[:half])
        if lost:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def handle_expect_100(self) -> bool:
        told = super().handle_expect_100()
        self.wfile.flush()  # or curl waits a second before it sends what TensorFlow writes
        return told

    def log_message(self, *_: object) -> None:
        pass


class Front(http.server.ThreadingHTTPServer):
    """Serves a handler on a port of 127.0.0.1: plain, or with a certificate over TLS, and then gRPC too."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, port: int, answer: Handler, tls: tuple[str, str] | None = None, grpc_port: int = 0
    ) -> None:
        super().__init__(("127.0.0.1", port), _Requests)
        self.answer, self._grpc_port, self._tls = answer, grpc_port, None
        if tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*tls)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def finish_request(
        self, request: socket.socket, client_address: object
    ) -> None:  # in a thread of its own
        if self._tls:
            if b"\x02h2" in request.recv(4096, socket.MSG_PEEK):
                _join(request, socket.create_connection(("127.0.0.1", self._grpc_port)))
                return
            request = self._tls.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, *_: object) -> None:
        pass  # a client that was killed


def _join(one: socket.socket, other: socket.socket) -> None:
    """Passes bytes both ways until either side ends."""

    def forward(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=forward, args=(other, one), daemon=True).start()
    forward(one, other)


def serve_grpc(
    transports: Iterable[type], answer: Handler, tls: tuple[str, str]
) -> tuple[grpc.Server, int]:
    """Serves whatever these transports of Google's clients can ask. Returns the server and its port."""
    handlers: dict[str, grpc.RpcMethodHandler] = {}
    for transport in transports:
        module = importlib.import_module(transport.__module__.replace(".grpc", ".rest_base"))
        base = getattr(module, f"_Base{transport.__name__.replace('Grpc', 'Rest')}")
        channel = mock.create_autospec(grpc.Channel, instance=True)
        with mock.patch("grpc.intercept_channel", lambda channel, _: channel):
            transport(channel=channel)  # it tells the channel of all its methods
        for [method], told in channel.unary_unary.call_args_list:
            parse, serialize = told["response_deserializer"], told["request_serializer"]
            if hasattr(
                serialize, "__self__"
            ):  # not a method of IAM, or of another service that all have
                rest = getattr(base, f"_Base{method.rpartition('/')[2]}")
                handlers[method] = _unary(
                    transport.DEFAULT_HOST, rest, serialize.__self__, parse.__self__, answer
                )

    class Services(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
            return handlers.get(details.method)

    certificate, key = (pathlib.Path(path).read_bytes() for path in tls)
    server = grpc.server(futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((Services(),))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    server.start()
    return server, port


def _unary(
    host: str, rest: Any, request_type: Any, reply_type: Any, answer: Handler
) -> grpc.RpcMethodHandler:
    def call(request: Any, context: grpc.ServicerContext) -> bytes:
        sent = path_template.transcode(rest._get_http_options(), request_type.pb(request))
        query = {
            name: str(value)
            for name, value in json_format.MessageToDict(sent["query_params"]).items()
        }
        body = json_format.MessageToJson(sent["body"]) if "body" in sent else ""
        headers = {"Authorization": dict(context.invocation_metadata()).get("authorization", "")}
        try:
            answered = answer(
                Request(sent["method"].upper(), host, sent["uri"], query, headers, body.encode())
            )
        except exceptions.GoogleAPICallError as error:
            unnamed = (
                grpc.StatusCode.UNAUTHENTICATED if error.code == 401 else grpc.StatusCode.UNKNOWN
            )
            context.abort(error.grpc_status_code or unnamed, error.message)
        except ResetError:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        message = reply_type.pb(reply_type()) if hasattr(reply_type, "pb") else reply_type()
        return json_format.ParseDict(
            answered.content, message, ignore_unknown_fields=True
        ).SerializeToString()

    return grpc.unary_unary_rpc_method_handler(call, request_deserializer=request_type.deserialize)
