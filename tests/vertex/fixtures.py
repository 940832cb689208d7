"""The fixture `vertex`, for tests of every folder: Google's clients talk to a server here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vertex.server import Server


@pytest.fixture
def vertex() -> Iterator[Server]:
    """An empty Vertex AI; `aiplatform`, and all that is built on it, goes there while the test runs."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform  # 2 s
    from vertex.server import Server

    settings = vars(aiplatform.initializer.global_config)
    before = dict(settings)
    try:
        with Server() as server:
            aiplatform.init(
                project=server.project,
                location=server.location,
                api_endpoint=server.url,
                api_transport="rest",
                credentials=AnonymousCredentials(),
            )
            yield server
    finally:
        settings.clear()
        settings.update(before)
