"""Tests of the kubernetes back end without a cluster; tests/kubernetes has those with one."""

import pytest

from common.errors import UserError
from components.train.__main__ import main
from tests.cloud.front import Answer, Front
from tests.errors import user_error

STATUS = ["--backend", "kubernetes", "--status", "gs://b/j"]


CONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:%d"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def test_missing_credentials_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with user_error(r"no access to a Kubernetes cluster .*; set KUBECONFIG"):
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
def test_answer_becomes_one_line(tmp_path, monkeypatch, status, text, kind, error):
    server = Front(0, lambda _: Answer(status, text.encode()))
    path = tmp_path / "kubeconfig"
    path.write_text(CONFIG % server.server_port)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(kind, match=error):
        main(STATUS)
