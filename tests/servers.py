"""Processes that serve HTTP as containers of Vertex AI do."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time

import requests

_START_S = 60.0


def _unused_port():
    """Returns a port of those that the system gives to no client.

    A port that it chose could be a client's before the server takes it, or was one a minute ago.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("localhost", port)):
            return port


def start_server(arguments, health_route, output, **environment):
    """Starts a module of Python on a port of AIP_HTTP_PORT, and waits until it is healthy.

    Returns:
      The process, which has ended if it did not get ready, and its URL.
    """
    port = _unused_port()
    url = f"http://localhost:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "AIP_HTTP_PORT": str(port), **environment},
    )
    deadline = time.monotonic() + _START_S
    while process.poll() is None:
        with contextlib.suppress(requests.ConnectionError):
            if requests.get(f"{url}{health_route}", timeout=5).ok:
                break
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
        time.sleep(0.1)
    return process, url
