"""The fixture `vertex`, for tests of every folder: Google's clients talk to a server here."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest


@pytest.fixture
def vertex() -> Iterator[Any]:
    """An empty `tests.cloud.vertex.Vertex` at `url`; `aiplatform`, and all that is built on it, goes there while the test runs."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform  # 2 s

    from tests.cloud.front import Front
    from tests.cloud.vertex import Vertex

    made = Vertex()
    with mock.patch.dict(vars(aiplatform.initializer.global_config)), Front(0, made.answer) as front:
        made.url = f"http://127.0.0.1:{front.server_port}"
        aiplatform.init(
            project=made.project,
            location=made.location,
            api_endpoint=made.url,
            api_transport="rest",
            credentials=AnonymousCredentials(),
        )
        yield made
        front.shutdown()
