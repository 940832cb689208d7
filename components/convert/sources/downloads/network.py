"""Whether a host can be reached, told within seconds.

urls = reachable(["https://storage.googleapis.com/cvdf-datasets/mnist/"], timeout_s=4)
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from trainer.base.errors import UserError

REPAIR = "check the network, or get the files elsewhere and give their place with --source"


def reachable(urls: Collection[str], timeout_s: float) -> list[str]:
    """Those URLs whose hosts, or the proxies that the environment names for them, take a connection in time.

    Raises:
      UserError: If there are none; not later than `timeout_s`, even if the look-up of a name hangs.
    """
    results: queue.Queue[tuple[str, str]] = queue.Queue()

    def check(url: str) -> None:
        try:
            with socket.create_connection(_endpoint(url), timeout=timeout_s):
                results.put((url, ""))
        except OSError as error:
            results.put((url, error.strerror or str(error)))

    for url in urls:
        threading.Thread(target=check, args=(url,), daemon=True).start()
    faults, deadline = dict.fromkeys(urls, f"no answer within {timeout_s:g} s"), time.monotonic() + timeout_s
    with contextlib.suppress(queue.Empty):
        for _ in urls:
            url, fault = results.get(timeout=max(0.0, deadline - time.monotonic()))
            faults[url] = fault
    if all(faults.values()):
        hosts = {urlsplit(url).hostname: fault for url, fault in faults.items()}
        raise UserError(f"cannot reach {', '.join(f'{host} ({fault})' for host, fault in hosts.items())}; {REPAIR}")
    return [url for url, fault in faults.items() if not fault]


def _endpoint(url: str) -> tuple[str | None, int]:
    from requests import utils  # 0.1 s

    parts = urlsplit(utils.select_proxy(url, utils.get_environ_proxies(url)) or url)
    return parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)
