"""Tests of the kubernetes back end without a cluster; tests/kubernetes has those with one."""

import http.server
import json
import threading

import pytest

from common.errors import UserError
from components.train.__main__ import main

STATUS = ["--backend", "kubernetes", "--status", "gs://b/j"]


@pytest.fixture
def answer(tmp_path, monkeypatch):
    """Has an API server of this machine answer every request with a status and text."""

    def answer(status, text):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = {
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:%d"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config) % server.server_port)
        monkeypatch.setenv("KUBECONFIG", str(path))
        return server

    return answer


def test_missing_credentials_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(UserError, match="no access to a Kubernetes cluster"):
        main(STATUS)


@pytest.mark.parametrize(
    ("status", "text", "kind", "error"),
    [
        (404, "404 page not found", UserError, "not found; docs/KUBERNETES.md says what a cluster"),
        (404, '{"message": "jobsets not found"}', UserError, "gs://b/j: no job ran here"),
        (401, '{"message": "Unauthorized"}', UserError, "Kubernetes: Unauthorized; log in again"),
        (422, '{"message": "bad\\n name"}', UserError, "Kubernetes: bad name$"),
        (503, "wait", ConnectionError, "Kubernetes: wait"),
    ],
)
def test_answer_becomes_one_line(answer, status, text, kind, error):
    answer(status, text)
    with pytest.raises(kind, match=error):
        main(STATUS)


def test_silent_server_is_named(answer):
    answer(200, "").server_close()
    with pytest.raises(ConnectionError, match="Kubernetes"):
        main(STATUS)
