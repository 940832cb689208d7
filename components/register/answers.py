"""Checks that a server of a version answers as its evaluation recorded, and fast enough.

check("registry/mnist/3", evaluation["answered"])

The check is made before an alias moves. It finds a version whose files are not those that were
judged, and one that needs code which its server does not have.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
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
        to one instance may be that many milliseconds at most.

    Raises:
      UserError: If no port can be reserved, no server gets ready within 10 minutes, refuses the
        requests or fails, or if its answers differ or come too late.
    """
    command = [sys.executable, "-m", "components.serve", "--name=m", f"--model-dir={model_dir}"]
    command += ["--host=127.0.0.1"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", OWNER_PID: str(os.getpid())}
    with (
        reserved(1) as (port,),
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [*command, f"--port={port}"], env=environment, stdout=log, stderr=log
        ) as server,
        requests.Session() as session,
    ):
        url = f"http://127.0.0.1:{port}/v1/models/m"
        session.trust_env = False  # The environment may name a proxy, which this is not for.
        try:
            deadline = time.monotonic() + _TIMEOUT_S
            while not _is_ready(session, url):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    *_, last = ("no word", *log.read().strip().splitlines())
                    raise UserError(f"{model_dir}: no server of it gets ready ({last})")
                time.sleep(0.05)
            compare(
                model_dir,
                lambda rows: session.post(
                    f"{url}:predict", json={"instances": rows}, timeout=_TIMEOUT_S
                ).json(),
                answered,
            )
        except requests.RequestException as error:
            raise UserError(f"{model_dir}: its server does not answer ({error})") from None
        finally:
            server.terminate()


def _is_ready(session: requests.Session, url: str) -> bool:
    try:
        return session.get(url).ok
    except requests.ConnectionError:
        return False


def compare(
    place: str, ask: Callable[[list[Any]], Mapping[str, Any]], answered: Mapping[str, Any]
) -> None:
    """Sends recorded requests to a server of a version, and compares the answers.

    Each number may differ by 1 % of the largest recorded one. If there is a bound on the latency,
    each row is sent once more, on its own, and the median time counts.

    Args:
      place: Name of the server or the version, for errors.
      ask: Sends a list of rows, and returns the JSON of the server's answer.
      answered: Requests and answers as `check` takes them, with the keys `instances`, `answers` and
        `output`, and perhaps `latency_ms`; if that is missing or None, time does not matter.

    Raises:
      UserError: If the server refuses the rows, or if its answers differ or come too late.
      Exception: What `ask` raises.
    """
    rows, output = answered["instances"], answered["output"]
    response = ask(rows)
    if "error" in response:
        raise UserError(
            f"{place}: its server refuses what it answered when it was judged ({response['error']})"
        )
    try:
        answers = np.array(
            [row[output] if isinstance(row, dict) else row for row in response["predictions"]],
            np.float64,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        shown = str(response)[:200]
        raise UserError(f"{place}: its server does not give {output} of rows: {shown}") from None
    judged = np.array(answered["answers"], np.float64)
    most = _TOLERANCE * np.abs(judged).max()
    # Written so that NaN counts as a difference.
    if answers.shape != judged.shape or not (np.abs(answers - judged) <= most).all():
        raise UserError(
            f"{place}: its server does not answer as when it was judged: it gives {output} "
            f"{answers[:2].tolist()} and gave {judged[:2].tolist()}; at most {most:.3g} may they "
            "differ"
        )
    if bound := answered.get("latency_ms"):
        times = []
        for row in rows:
            start = time.perf_counter()
            ask([row])
            times.append(1000 * (time.perf_counter() - start))
        if (median := statistics.median(times)) > bound:
            raise UserError(
                f"{place}: its server answers a row in {median:.3g} ms, and the gate allows "
                f"{bound:g} ms"
            )
