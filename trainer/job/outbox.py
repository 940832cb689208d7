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

from etils import epath

from common.errors import UserError
from common.storage.files import write_bytes
from common.storage.storage import is_remote

_LAST_S = 20.0


class Outbox:
    """Where one replica writes what grows."""

    def __init__(self, job_dir: str, every_s: float) -> None:
        self._job_dir, self._directory = job_dir, job_dir
        self._sent: dict[pathlib.Path, int] = {}
        self._lock = threading.Lock()
        self._copies = is_remote(job_dir)
        if self._copies:
            self._directory = tempfile.mkdtemp(prefix="job-")
            threading.Thread(target=self._run, args=(every_s,), name="outbox", daemon=True).start()

    def path(self, *names: str) -> str:
        """Where to write the file or directory of these names below the job directory."""
        path = os.path.join(self._directory, *names)
        epath.Path(path).parent.mkdir(parents=True, exist_ok=True)
        return path

    def send(self) -> None:
        """Has everything so far copied, and waits for it a limited time: this replica is about to end."""
        if self._copies:
            last = threading.Thread(target=lambda: print(self._failure(), end="", flush=True), daemon=True)
            last.start()
            last.join(_LAST_S)

    def _run(self, every_s: float) -> None:
        while True:
            time.sleep(every_s)
            self._failure()  # of a store that fails for longer than its client tries: again next time

    def _failure(self) -> str:
        """Copies, and returns a line that says what failed, if it did."""
        with self._lock:
            try:
                self._copy()
            except (OSError, UserError) as error:
                return f"{self._job_dir}: journal and events could not be copied there for now: {error}\n"
        return ""

    def _copy(self) -> None:
        root = pathlib.Path(self._directory)
        for path in filter(pathlib.Path.is_file, root.rglob("*")):
            content = path.read_bytes()
            if content and self._sent.get(path) != len(content):  # these files only grow
                write_bytes(os.path.join(self._job_dir, path.relative_to(root)), content)
                self._sent[path] = len(content)
