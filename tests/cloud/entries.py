"""Cloud Logging, as far as it is asked for the logs of custom jobs: every line that a replica has written is an entry.

After the REST reference of `entries.list` and `LogEntry`. A line is as old as the first request
that could see it.
"""

import json
import pathlib
import re
from typing import Any

from google.api_core import exceptions

from tests.cloud.collection import now
from tests.cloud.front import Answer, Request
from tests.cloud.machines import POOLS

_PAGE = 20  # small, so that every client is seen to ask for the next page
_FILTER = re.compile(
    r'resource.type="ml_job" AND resource.labels.job_id="(\d+)"(?: AND timestamp>="([^"]+)")?'
)


class Entries:
    """The entries of all jobs whose logs are in a directory, `job-N/chief-0.log`."""

    def __init__(self, logs: pathlib.Path) -> None:
        self._logs = logs
        self._entries: dict[str, list[dict[str, Any]]] = {}  # By job, oldest first.

    def answer(self, request: Request) -> Answer:
        """A page of what `entries:list` finds."""
        asked = json.loads(request.body)
        if not (terms := _FILTER.fullmatch(asked["filter"])) or asked["orderBy"] != "timestamp asc":
            raise exceptions.InvalidArgument(f"filter {asked['filter']!r}")
        found = [entry for entry in self._of(terms[1]) if entry["timestamp"] >= (terms[2] or "")]
        start = int(asked.get("pageToken") or 0)
        more = {"nextPageToken": str(start + _PAGE)} if start + _PAGE < len(found) else {}
        return Answer(200, {"entries": found[start : start + _PAGE], **more})

    def _of(self, job: str) -> list[dict[str, Any]]:
        entries = self._entries.setdefault(job, [])
        known = {entry["insertId"] for entry in entries}
        for path in sorted((self._logs / f"job-{job}").glob("*.log")):
            role, index = path.stem.split("-")
            labels = {"job_id": job, "task_name": f"workerpool{POOLS.index(role)}-{index}"}
            for number, line in enumerate(path.read_text(errors="replace").split("\n")[:-1]):
                if (name := f"{path.stem}-{number}") not in known:
                    written = {
                        "insertId": name,
                        "timestamp": now().isoformat(),
                        "textPayload": line,
                    }
                    entries.append({**written, "resource": {"type": "ml_job", "labels": labels}})
        return entries
