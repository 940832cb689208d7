"""An object store on this machine whose connections and requests are as slow as it is told.

with served(directory, connection_bytes_s=5e6, latency_s=0.05) as host:      # for STORAGE_EMULATOR_HOST
"""

import contextlib
import json
import math
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

_STEP_BYTES = 1 << 16


@contextlib.contextmanager
def served(directory: pathlib.Path, *, connection_bytes_s: float = math.inf, latency_s: float = 0.0) -> Iterator[str]:
    """Serves the buckets of a directory, in a process of its own: so many bytes a second go each way, by each connection."""
    arguments = [str(directory), str(connection_bytes_s), str(latency_s)]
    command = [sys.executable, "-m", "tests.bench.slow_store", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())}"
        process.stdin.close()


class _Paced:
    """An end of a connection; what goes through takes its time."""

    def __init__(self, file: Any, bytes_s: float) -> None:
        self._file, self._bytes_s, self._free_s = file, bytes_s, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int) -> bytes:
        found = []
        while size > 0 and (some := self._file.read(min(size, _STEP_BYTES))):
            found.append(some)
            size -= len(some)
            self._pass(len(some))
        return b"".join(found)

    def write(self, content: bytes) -> None:
        for first in range(0, len(content), _STEP_BYTES):
            some = content[first : first + _STEP_BYTES]
            self._file.write(some)
            self._pass(len(some))

    def _pass(self, num_bytes: int) -> None:
        now = time.monotonic()
        self._free_s = max(now, self._free_s) + num_bytes / self._bytes_s
        time.sleep(self._free_s - now)


def main(directory: str, connection_bytes_s: str, latency_s: str) -> None:
    """Serves until standard input ends, and says on which port."""
    from tests.cloud import front
    from tests.cloud.objects import Objects
    from tests.cloud.storage import Storage

    class Requests(front._Requests):
        def setup(self) -> None:
            super().setup()
            self.rfile, self.wfile = (_Paced(file, float(connection_bytes_s)) for file in (self.rfile, self.wfile))

    storage = Storage(Objects(pathlib.Path(directory)))

    def answer(request: front.Request) -> front.Answer:
        time.sleep(float(latency_s))
        return storage.answer(request)

    server = front.Front(0, answer)
    server.RequestHandlerClass = Requests
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
