"""Checks that a server of a version answers as its evaluation recorded, and fast enough.

check("registry/mnist/3", evaluation["answered"])

The check is made before an alias moves. It finds a version whose files are not those that were
judged, and one that needs code which its server does not have.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import requests

from common.errors import UserError
from common.lifeline import OWNER_PID
from common.ports import reserved

# Largest difference between answers, as a share of the largest answer. Another machine, precision
# or number of threads changes answers by less.
_TOLERANCE = 0.01
_TIMEOUT_S = 600.0


def check(model_dir: str, answered: Mapping[str, Any]) -> None:
    """Serves a SavedModel in a process of its own, and compares its answers with the recorded ones.

    Args:
      model_dir: Directory of the model, local or in a bucket.
      answered: What `evaluation.json` has as `answered`: the `instances` to send, and the `answers`
        to expect under the name `output`. If there is a `latency_ms`, the median time of an answer
        to the first instance may be that many milliseconds at most.

    Raises:
      UserError: If ports cannot be locked, the server ends or does not answer within 10 minutes,
        it refuses the requests, or its answers differ or come too late.
    """
    command = [sys.executable, "-m", "components.serve", "--name=m", f"--model-dir={model_dir}"]
    deadline = time.monotonic() + _TIMEOUT_S
    with (
        reserved(1) as (port,),
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [*command, "--host=127.0.0.1", f"--port={port}"],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", OWNER_PID: str(os.getpid())},
            stdout=log,
            stderr=log,
        ) as server,
        requests.Session() as session,
    ):
        url = f"http://127.0.0.1:{port}/v1/models/m:predict"
        session.trust_env = False  # The environment may name a proxy, which this is not for.

        def ask(rows: list[Any]) -> Mapping[str, Any]:
            while server.poll() is None and time.monotonic() < deadline:
                # The port is open once the model is loaded.
                with contextlib.suppress(requests.RequestException):
                    return session.post(url, json={"instances": rows}, timeout=_TIMEOUT_S).json()
                time.sleep(0.05)
            log.seek(0)
            last_line = log.read().strip().rpartition("\n")[2]
            raise UserError(f"{model_dir}: no server of it answers ({last_line})")

        try:
            compare(model_dir, ask, answered)
            if bound := answered.get("latency_ms"):
                first = answered["instances"][:1]
                times_s = timeit.repeat(lambda: ask(first), number=1, repeat=15)
                if (median := 1000 * statistics.median(times_s)) > bound:
                    raise UserError(
                        f"{model_dir}: its server answers a row in {median:.3g} ms, and the gate "
                        f"allows {bound:g} ms"
                    )
        finally:
            server.terminate()


def compare(
    place: str, ask: Callable[[list[Any]], Mapping[str, Any]], answered: Mapping[str, Any]
) -> None:
    """Sends recorded requests to a server of a version, and compares the answers.

    Each number may differ by 1 % of the largest recorded one.

    Args:
      place: Name of the server or the version, for errors.
      ask: Sends a list of rows, and returns the JSON of the server's answer.
      answered: Requests and answers as `check` takes them, with the keys `instances`, `answers` and
        `output`.

    Raises:
      UserError: If the server refuses the rows, or if its answers differ.
      Exception: What `ask` raises.
    """
    response = ask(answered["instances"])
    output, judged = answered["output"], np.array(answered["answers"], np.float64)
    try:
        answers = np.array(
            [row[output] if isinstance(row, dict) else row for row in response["predictions"]],
            np.float64,
        )
        most = _TOLERANCE * np.abs(judged).max()
        # NaN is no small difference.
        is_same = answers.shape == judged.shape and (np.abs(answers - judged) <= most).all()
    except (KeyError, TypeError, ValueError, OverflowError):
        is_same = False
    if not is_same:
        raise UserError(
            f"{place}: its server does not answer as when it was judged: it gives "
            f"{str(response)[:300]} and gave {output} {judged[:2].tolist()}"
        )
