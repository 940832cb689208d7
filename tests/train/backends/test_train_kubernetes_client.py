"""Credentials of the client of Kubernetes; tests/kubernetes sends its requests."""

import pytest
from kubernetes import config

from components.train.backends.kubernetes_client import JobSetClient


@pytest.fixture
def pod(monkeypatch, tmp_path):
    """Puts this process into a pod of the namespace `team`, without a kubeconfig file."""
    for name, text in {"namespace": "team", "token": "t", "ca.crt": "c"}.items():
        (tmp_path / name).write_text(text)
    inside = config.incluster_config
    monkeypatch.setattr(inside, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(inside, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(config.kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    return tmp_path


def test_pod_uses_its_own_namespace(pod):
    with pytest.raises(ConnectionError, match="/namespaces/team/jobsets/a"):
        JobSetClient(None, "a").get()
    with pytest.raises(ConnectionError, match="/namespaces/other/jobsets/a"):
        JobSetClient("other", "a").get()
