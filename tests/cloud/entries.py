"""Cloud Logging, as far as it is asked for custom jobs: every line of a replica is an entry.

After the REST reference of `entries.list` and `LogEntry`. A chief's line is as old as the first
request that could see it; lines of others arrive late, half a minute after they were written.
"""

import datetime
import json
import re

from tests.cloud.collection import now, require
from tests.cloud.front import Answer
from tests.cloud.machines import POOLS

_LATE = datetime.timedelta(seconds=30)
_PAGE = 20  # small, so that every client is seen to ask for the next page
_FILTER = r'resource.type="ml_job" AND resource.labels.job_id="(\d+)"(?: AND timestamp>="([^"]+)")?'


class Entries:
    """The entries of all jobs whose logs are in a directory, `job-N/chief-0.log`."""

    def __init__(self, logs):
        self._logs = logs
        self._entries = {}  # By job and id.

    def answer(self, request):
        """A page of what `entries:list` finds."""
        asked = json.loads(request.body)
        terms = re.fullmatch(_FILTER, asked["filter"])
        require(terms and asked["orderBy"] == "timestamp asc", f"filter {asked['filter']!r}")
        matching = [entry for entry in self._of(terms[1]) if entry["timestamp"] >= (terms[2] or "")]
        start = int(asked.get("pageToken") or 0)
        end = start + _PAGE
        more = {"nextPageToken": str(end)} if end < len(matching) else {}
        return Answer(200, {"entries": matching[start:end], **more})

    def _of(self, job):
        for path in sorted((self._logs / f"job-{job}").glob("*.log")):
            role, index = path.stem.split("-")
            labels = {"job_id": job, "task_name": f"workerpool{POOLS.index(role)}-{index}"}
            late = _LATE * (role != "chief")
            for number, line in enumerate(path.read_text(errors="replace").split("\n")[:-1]):
                resource = {"type": "ml_job", "labels": labels}
                written = {"timestamp": (now() - late).isoformat(), "textPayload": line}
                about = {"insertId": f"{path.stem}-{number}", "resource": resource, **written}
                self._entries.setdefault((job, about["insertId"]), about)
        return [entry for key, entry in self._entries.items() if key[0] == job]
