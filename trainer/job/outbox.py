"""Files of a job directory that grow: journals and TensorBoard's events.

An object store cannot append. Each time such a file is flushed it is sent again whole, whoever flushes waits for the
store, and Cloud Storage takes about one write a second to an object (its documentation, "Quotas & limits"). So for a
job directory in a store they are written to a directory of this machine, and a thread copies what has changed.
"""

import os
import pathlib
import tempfile
import threading
import time

from common.errors import UserError
from common.storage.files import write_bytes
from common.storage.storage import is_remote

_TRY_S = 20.0


class Outbox:
    """Where one replica writes what grows."""

    def __init__(self, job_dir: str, every_s: float) -> None:
        self._job_dir, self._directory = job_dir, job_dir
        self._sent: dict[pathlib.Path, int] = {}
        self._lock = threading.Lock()
        if is_remote(job_dir):
            self._directory = tempfile.mkdtemp(prefix="job-")
            threading.Thread(target=self._send_repeatedly, args=(every_s,), name="outbox", daemon=True).start()

    def path(self, *names: str) -> str:
        """Returns where to write the file or directory of these names below the job directory."""
        path = os.path.join(self._directory, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def send(self) -> None:
        """Copies what has grown to the store; a line says what failed, which is tried again next time."""
        if self._directory == self._job_dir:
            return
        root = pathlib.Path(self._directory)
        with self._lock:
            try:
                for path in filter(pathlib.Path.is_file, root.rglob("*")):
                    content = path.read_bytes()
                    if len(content) > self._sent.get(path, 0):
                        target = os.path.join(self._job_dir, path.relative_to(root))
                        write_bytes(target, content, timeout_s=_TRY_S)  # A replica that is to stop has little time.
                        self._sent[path] = len(content)
            except (OSError, UserError) as error:
                print(f"{self._job_dir}: journal and events could not be copied there for now: {error}", flush=True)

    def _send_repeatedly(self, every_s: float) -> None:
        while True:
            time.sleep(every_s)
            self.send()
