"""Real servers, each a process, and the models that they serve."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
import requests
import yaml
from PIL import Image
from saved_models import export_untrained

from components.convert.convert import convert
from components.convert.options import Options
from components.register.register import open_registry
from tests.rides import SCHEMA, typed_rows, write_csv

_START_S = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """A server that is ready.

    Attributes:
      process: The process.
      url: `http://localhost:PORT`.
      name: Name of its model.
      log: File of what it prints.
    """

    process: subprocess.Popen
    url: str
    name: str
    log: pathlib.Path

    def send(self, body: Any, path: str = "", **options: Any) -> requests.Response:
        """Posts bytes, or a value as JSON, to the model's `:predict` or another path."""
        content = {"data": body} if isinstance(body, bytes | Iterator) else {"json": body}
        return requests.post(f"{self.url}{path or f'/v1/models/{self.name}:predict'}", timeout=60, **content, **options)

    def ask(self, **body: Any) -> Any:
        """Returns the answer to a request that is right."""
        response = self.send(body)
        assert response.status_code == 200, response.text
        return response.json()


@contextlib.contextmanager
def _serving(folder: pathlib.Path, name: str, flags: list[str], **environment: str) -> Iterator[Server]:
    with socket.create_server(("localhost", 0)) as unused:
        port = unused.getsockname()[1]
    if "AIP_HTTP_PORT" in environment:
        environment["AIP_HTTP_PORT"] = str(port)
    else:
        flags = [*flags, "--port", str(port)]
    log = folder / f"{port}.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "components.serve", "--name", name, *flags],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", **environment},
        )
    server = Server(process=process, url=f"http://localhost:{port}", name=name.partition("@")[0], log=log)
    try:
        deadline = time.monotonic() + _START_S
        while not _is_ready(server):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    assert "Traceback" not in log.read_text(), log.read_text()


def _is_ready(server: Server) -> bool:
    try:
        return requests.get(f"{server.url}/v2/health/ready", timeout=5).json() == {"ready": True}
    except requests.ConnectionError:
        return False


@pytest.fixture(scope="session")
def serving(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., contextlib.AbstractContextManager[Server]]:
    """Returns what starts a server: name of the model, flags, and environment variables."""
    folder = tmp_path_factory.mktemp("logs")
    return lambda name, *flags, **environment: _serving(folder, name, [*map(str, flags)], **environment)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns a registry with three versions of a model: the first is the champion, the last is damaged."""
    folder = tmp_path_factory.mktemp("rides")
    write_csv(folder / "rides.csv", typed_rows(300))
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA), encoding="utf-8")
    source = {"source": str(folder / "rides.csv"), "schema": str(folder / "schema.yaml")}
    with contextlib.redirect_stdout(io.StringIO()):
        manifest = convert(Options(dataset="csv", **source, output=str(folder / "data")))
    models = open_registry(str(folder / "registry"))
    for seed in (1, 2):
        models.register("rides", export_untrained(manifest, folder / f"model{seed}", seed=seed), {})
    (folder / "model2" / "saved_model.pb").write_bytes(b"damaged")
    models.register("rides", str(folder / "model2"), {})
    models.promote("rides", "1")
    return folder / "registry"


@pytest.fixture(scope="session")
def server(registry: pathlib.Path, serving: Callable[..., Any]) -> Generator[Server, None, None]:
    """Serves the champion of the rides."""
    with serving("rides", "--registry", registry, "--poll-s", 0.2) as server:
        yield server


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory, serving: Callable[..., Any]) -> Generator[Server, None, None]:
    """Serves a model of images of 9 x 8 pixels as Vertex AI has a container do it."""
    folder = tmp_path_factory.mktemp("images")
    for i in range(40):
        path = folder / "source" / "ab"[i % 2] / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 8), (i, 5 * i, 255 - i)).save(path)
    with contextlib.redirect_stdout(io.StringIO()):
        manifest = convert(
            Options(dataset="images", source=str(folder / "source"), output=str(folder / "data"), shards=1)
        )
    export_untrained(manifest, folder / "version" / "1", "cnn")
    with serving("shapes", AIP_STORAGE_URI=str(folder / "version"), AIP_HTTP_PORT="") as server:
        yield server


@pytest.fixture(scope="session")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Returns a model that counts to the largest number that it is given, and answers with its inputs."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="count")])
    def serve(count: tf.Tensor) -> dict[str, tf.Tensor]:
        most = tf.reduce_max(count)
        total = tf.while_loop(lambda i: i < most, lambda i: [i + 1], [tf.constant(0, tf.int64)])
        return {"counted": tf.minimum(count, total[0])}

    module = tf.Module()
    module.serve = serve
    path = tmp_path_factory.mktemp("slow") / "model"
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path
