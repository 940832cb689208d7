"""Google's client of Cloud Storage as files use it: one a process, for all of its threads, and what it does is counted.

pyarrow's file system for Google Cloud was tried in the loopback cloud and left: it can be given no certificate authority,
reads what is there now in place of the version that was listed, and neither its requests nor its retries can be counted.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

from common.google_cloud import refusals
from common.storage.files import Counts

THREADS = 16
# What this process has done: `requests` to stores, `retries` of them, `bytes_read` and `bytes_written` anywhere.
COUNTS = Counts("requests", "retries", "bytes_read", "bytes_written")


def retried(call: Callable[..., Any]) -> Callable[..., Any]:
    """Stands where Google's client takes a policy of trying again: its own, two minutes at most, but counted."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    return DEFAULT_RETRY(call, on_error=lambda _: COUNTS.add(retries=1))


@contextlib.contextmanager
def asked(place: str) -> Iterator[tuple[Any, str]]:
    """The bucket that `gs://BUCKET/NAME` lies in, and the name; what the store refuses is a `UserError`."""
    bucket, _, name = place.removeprefix("gs://").partition("/")
    with refusals(f"{place} cannot be used"):
        yield _client(os.environ.get("STORAGE_EMULATOR_HOST")).bucket(bucket), name


@functools.cache
def _client(_emulator: str | None) -> Any:
    from google.cloud import storage  # 1 s
    from requests.adapters import HTTPAdapter

    class Counting(HTTPAdapter):
        def send(self, *args: Any, **more: Any) -> Any:
            COUNTS.add(requests=1)
            return super().send(*args, **more)

    client = storage.Client(project=None)
    for scheme in ("https://", "http://"):  # the latter of an emulator
        client._http.mount(scheme, Counting(pool_maxsize=2 * THREADS, pool_block=True))
    return client


def parallel(call: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """`call` of each, in their order, many at once; when one fails, those that have not begun are not done."""
    with futures.ThreadPoolExecutor(THREADS) as pool:
        try:
            return list(pool.map(call, items))
        finally:
            pool.shutdown(cancel_futures=True)


os.register_at_fork(
    after_in_child=_client.cache_clear
)  # two processes on one connection would read each other's answers
