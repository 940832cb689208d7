"""Real servers, each a process, and the models that they serve."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
import requests
from saved_models import export_untrained

from components.register.register import open_registry
from tests.rides import convert_quietly, source, typed_rows
from tests.servers import start_server


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

    def send(self, body, path="", **options):
        """Posts bytes, or a value as JSON, to the model's `:predict` or another path."""
        options["data" if isinstance(body, bytes | Iterator) else "json"] = body
        url = f"{self.url}{path or f'/v1/models/{self.name}:predict'}"
        return requests.post(url, timeout=60, **options)

    def ask(self, **body):
        """Returns the answer to a request that is right."""
        response = self.send(body)
        assert response.status_code == 200, response.text
        return response.json()


@pytest.fixture(scope="session")
def serving(tmp_path_factory):
    """Returns what starts a server: name of the model, flags, and environment variables."""
    folder = tmp_path_factory.mktemp("logs")

    @contextlib.contextmanager
    def start(name, *flags, **environment):
        descriptor, log = tempfile.mkstemp(dir=folder)
        with open(descriptor, "w") as output:
            arguments = ["components.serve", "--name", name, *flags]
            process, url = start_server(arguments, "/v2/health/ready", output, **environment)
        log = pathlib.Path(log)
        assert process.poll() is None, log.read_text()
        try:
            yield Server(process=process, url=url, name=name, log=log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
        assert "Traceback" not in log.read_text(), log.read_text()

    return start


@pytest.fixture(scope="session")
def registry(tmp_path_factory):
    """Returns a registry with three versions: the first is the champion, the last is damaged."""
    folder = tmp_path_factory.mktemp("rides")
    manifest = convert_quietly(source(folder, typed_rows(300)))
    models = open_registry(str(folder / "registry"))
    for seed in (1, 2):
        models.register("rides", export_untrained(manifest, folder / f"model{seed}", seed=seed), {})
    (folder / "model2" / "saved_model.pb").write_bytes(b"damaged")
    models.register("rides", str(folder / "model2"), {})
    models.promote("rides", "1")
    return folder / "registry"


@pytest.fixture(scope="session")
def server(registry, serving):
    """Serves the champion of the rides."""
    with serving("rides", "--registry", registry, "--poll-s", 0.2) as server:
        yield server


@pytest.fixture(scope="session")
def slow_model(tmp_path_factory):
    """Returns a model that counts to the largest of its inputs, and answers with these."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="count")])
    def serve(count: tf.Tensor) -> dict[str, tf.Tensor]:
        total, most = tf.constant(0, tf.int64), tf.reduce_max(count)
        while total < most:
            total += 1
        return {"counted": tf.minimum(count, total)}

    module = tf.Module()
    module.serve = serve
    path = tmp_path_factory.mktemp("slow") / "model"
    tf.saved_model.save(module, str(path), signatures={"serving_default": serve})
    return path
