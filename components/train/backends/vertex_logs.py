"""What the replicas of a custom job have written, from Cloud Logging.

    logs = CloudLogs("my-project", job_id, roles=("chief", "worker"))
    for replica, line in logs.new(session): ...   # ("worker/1", "step 10")

The filter is that of `gcloud ai custom-jobs stream-logs`; the fields of an entry are those of the REST reference of `LogEntry`.
"""

import datetime
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

URL = "https://logging.googleapis.com/v2/entries:list"
_LATE = datetime.timedelta(seconds=60)  # Lines of one replica may arrive after later ones of another.
_TIMEOUT_S = 30.0


class CloudLogs:
    """The log of one job, of which each line is given once."""

    def __init__(self, project: str, job_id: str, roles: Sequence[str]) -> None:
        """`roles` are those of the job's worker pools, in order."""
        self._project, self._roles = project, roles
        self._filter = f'resource.type="ml_job" AND resource.labels.job_id="{job_id}"'
        self._seen: dict[str, datetime.datetime] = {}  # When each line was written, by its id.

    def new(self, session: Any) -> Iterator[tuple[str, str]]:
        """Replica and text of each line since the last call, by `google.auth`'s session, whose errors are `OSError`s."""
        since = max(self._seen.values(), default=None)
        asked = {"resourceNames": [f"projects/{self._project}"], "orderBy": "timestamp asc", "pageSize": 1000}
        asked["filter"] = self._filter + (f' AND timestamp>="{(since - _LATE).isoformat()}"' if since else "")
        if since:
            self._seen = {key: written for key, written in self._seen.items() if written >= since - _LATE}
        while True:
            answer = session.post(URL, json=asked, timeout=_TIMEOUT_S)
            answer.raise_for_status()
            page = answer.json()
            for entry in page.get("entries", ()):
                if entry["insertId"] not in self._seen:
                    self._seen[entry["insertId"]] = datetime.datetime.fromisoformat(entry["timestamp"])
                    replica = self._replica(entry["resource"]["labels"].get("task_name", ""))
                    yield from ((replica, line) for line in _text(entry).splitlines())
            if not (token := page.get("nextPageToken")):
                return
            asked["pageToken"] = token

    def _replica(self, task: str) -> str:
        """`worker/1` of `workerpool1-1`; what Vertex AI says itself is of `service`."""
        return replica_name(task, self._roles) or task or "vertex"


def replica_name(text: str, roles: Sequence[str]) -> str:
    """The replica that a text names as Vertex AI does, `workerpool1-0`; empty if it names none."""
    found = re.search(r"workerpool(\d+)-(\d+)", text)
    return f"{roles[int(found[1])]}/{found[2]}" if found and int(found[1]) < len(roles) else ""


def _text(entry: dict[str, Any]) -> str:
    said = entry.get("jsonPayload")
    return entry.get("textPayload", "") if said is None else str(said.get("message") or json.dumps(said))
