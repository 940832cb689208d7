"""Fixtures for tests of every folder: Google's clients talk to a server here."""

import os
import re
from unittest import mock

import pytest
from etils.epath import backend


@pytest.fixture
def vertex():
    """An empty `tests.cloud.vertex.Vertex` at `url`, where `aiplatform` goes during the test.

    A client for one region is refused for another one, which has a host of its own.
    """
    from google.api_core.client_options import ClientOptions
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform  # 2 s

    from tests.cloud.collection import require
    from tests.cloud.front import Front
    from tests.cloud.vertex import Vertex

    made, config = Vertex(), aiplatform.initializer.global_config

    def answer(request):
        region, path = re.fullmatch(r"/?([\w-]*)(/(?:v1|ui)\b.*)", request.path).groups()
        require(region in path, f"{path} at the host of {region}")
        return made.answer(request._replace(path=path))

    def options(location_override=None, **_):
        return ClientOptions(api_endpoint=f"{made.url}/{location_override or config.location}")

    with mock.patch.dict(vars(config), get_client_options=options), Front(0, answer) as front:
        made.url = f"http://127.0.0.1:{front.server_port}"
        aiplatform.init(
            project=made.project,
            location=made.location,
            api_transport="rest",
            credentials=AnonymousCredentials(),
        )
        yield made
        front.shutdown()
    made.endpoints.close()


class _Folders(backend._OsPathBackend):
    """Answers epath's calls for `gs://` from a directory with a folder for each bucket."""

    def __init__(self, root):
        for name in ("open", "exists", "isdir", "listdir", "mkdir", "stat"):
            setattr(self, name, self._there(getattr(backend.os_backend, name), root))

    def _there(self, asked, root):
        def ask(path, *rest, **more):
            at = re.sub("^gs:/+", f"{root}/", os.fspath(path))
            if "w" in str(rest):
                os.makedirs(os.path.dirname(at), exist_ok=True)  # as a store needs none
            return asked(at, *rest, **more)

        return ask


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The directory of `gs://demo`: its files are what Google's client of the store writes."""
    from tests.cloud.front import Front
    from tests.cloud.objects import Objects
    from tests.cloud.storage import Storage

    (demo := tmp_path / "buckets" / "demo").mkdir(parents=True)
    monkeypatch.setattr(backend, "tf_backend", _Folders(demo.parent))
    with Front(0, Storage(Objects(demo.parent, write_s=0.0)).answer) as front:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{front.server_port}")
        yield demo
        front.shutdown()


@pytest.fixture
def faults(request, monkeypatch):
    """The `Faults` of the store that has `bucket`; Google's client asks again soon."""
    from google.cloud.storage import retry

    from tests.cloud.faults import Faults, ResetError
    from tests.cloud.storage import Storage

    faults, answer = Faults(), Storage.answer

    def failing(store, asked):
        hits, answered = faults.meet(str(asked)), answer(store, asked)
        if hits:
            raise ResetError(answered)
        return answered

    monkeypatch.setattr(Storage, "answer", failing)
    soon = retry.DEFAULT_RETRY.with_delay(initial=0.02, maximum=0.5)
    monkeypatch.setattr(retry, "DEFAULT_RETRY", soon)
    request.getfixturevalue("bucket")
    return faults


@pytest.fixture
def busy_bucket(faults, bucket):
    """The same of a store that fails one request in forty."""
    rules = [{"match": "", how: True, "share": 0.0025} for how in ("reset", "cut")]
    faults.set("store", [{"match": "", "status": 503, "share": 0.02}, *rules])
    return bucket
