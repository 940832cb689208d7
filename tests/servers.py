"""Processes that serve HTTP as containers of Vertex AI do."""

import requests

from common.ports import reserved
from tests.programs import start_python, wait_until


def start_server(arguments, health_route, output, **environment):
    """Starts a module of Python on a port of AIP_HTTP_PORT, and waits until it is healthy.

    Returns:
      The process, which has ended if it did not get ready, and its URL.
    """
    with reserved(1) as (port,):
        url = f"http://localhost:{port}"
        environment = {"CUDA_VISIBLE_DEVICES": "-1", "AIP_HTTP_PORT": str(port), **environment}
        process = start_python("-m", *arguments, stdout=output, env=environment)

        def is_decided():
            return process.poll() is not None or requests.get(f"{url}{health_route}", timeout=5).ok

        wait_until(is_decided, 60, 0.1, (requests.ConnectionError,))
    return process, url
