"""Asks Vertex AI for custom jobs and Cloud Logging for what their replicas have written.

    Jobs("my-project", "us-central1").create(body)
    logs = CloudLogs("my-project", job_id, roles=("chief", "worker"))
    for replica, line in logs.new(): ...   # ("worker/1", "step 10")

The filter of the log is that of `gcloud ai custom-jobs stream-logs`; the fields of an entry are
those of the REST reference of `LogEntry`.
"""

import contextlib
import datetime
import enum
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from common.errors import UserError
from common.google_cloud import OURS, RefusedError, credentials, refusals

_ENDED = {"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"}  # States.
# The first is what Vertex AI's page on the training service says. A Spot machine that is taken
# "fails with a STOCKOUT error", says the page on Spot VMs; that this word is in the error's text is
# a guess.
_STOCKOUT = re.compile(
    "resources are insufficient|stockout|quota|RESOURCE_EXHAUSTED", re.IGNORECASE
)
_RESOURCE_EXHAUSTED = 8
# Codes ABORTED, INTERNAL and UNAVAILABLE, and the text in "Understand the custom training service".
_INFRASTRUCTURE, _INTERNAL = {10, 13, 14}, re.compile("internal error", re.IGNORECASE)
_NON_ZERO = re.compile(r"non-zero status of (\d+)")
_SERVICE = "Vertex AI"  # Messages begin with it.


class Ending(enum.StrEnum):
    """End of an attempt."""

    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    STOCKOUT = "stockout"  # No machines or no quota for them, or they were taken away.
    LOST = (
        "lost"  # By a failure of the infrastructure: of its machines, or of what had launched it.
    )
    FAILED = "failed"


class NoCapacityError(RefusedError):
    """Vertex AI refuses a job for lack of quota; other machines have other quotas."""


class Jobs:
    """Custom jobs of a project in a location; every method raises what `refusals` does."""

    def __init__(self, project: str, location: str) -> None:
        self._location = location
        self._parent = f"projects/{project}/locations/{location}"

    def create(self, body: Mapping[str, Any]) -> str:
        """Has a job begin, and returns its name; raises `NoCapacityError` for lack of quota."""
        from google.api_core.exceptions import TooManyRequests
        from google.cloud import aiplatform_v1 as v1

        with refusals(_SERVICE):
            job = v1.CustomJob.from_json(json.dumps(body))
            try:
                return self._client().create_custom_job(parent=self._parent, custom_job=job).name
            except TooManyRequests as error:
                raise NoCapacityError(f"{_SERVICE}: {error}") from None

    def named(self, display_name: str) -> Any:
        """Returns our job of this display name; None if there is none."""
        request = {"parent": self._parent, "filter": f'{OURS} AND display_name="{display_name}"'}
        with refusals(_SERVICE):
            return next(iter(self._client().list_custom_jobs(request=request)), None)

    def get(self, name: str) -> Any:
        """Returns a job as it is now."""
        with refusals(_SERVICE):
            return self._client().get_custom_job(name=name)

    def cancel(self, name: str) -> None:
        """Cancels a job, whose replicas then save a checkpoint."""
        with refusals(_SERVICE):
            self._client().cancel_custom_job(name=name)

    def _client(self) -> Any:
        from google.cloud import aiplatform  # 2 s

        config = aiplatform.initializer.global_config
        return config.create_client(
            aiplatform.utils.JobClientWithOverride, location_override=self._location
        )


class Outages:
    """Shows once each reason why Google Cloud could not be reached, and has its clients take new credentials."""

    def __init__(self, project: str, subject: str, show: Callable[[str], None]) -> None:
        """`subject` is what goes on meanwhile."""
        self._project, self._subject, self._show = project, subject, show
        self._reasons: set[str] = set()

    @contextlib.contextmanager
    def tolerated(self) -> Iterator[None]:
        """Suppresses errors other than refusals, of calls that will be repeated."""
        from google.cloud import aiplatform

        try:
            yield
        except RefusedError:
            raise
        except (OSError, UserError) as error:
            if (reason := str(error)) not in self._reasons:
                self._reasons.add(reason)
                self._show(f"{reason}; {self._subject} goes on, and so does waiting for it")
            # Somebody may have logged in. Without a project, the clients would change to REST.
            with contextlib.suppress(UserError):
                aiplatform.init(project=self._project, credentials=credentials())


def ending(job: Any) -> Ending | None:
    """Returns how a `CustomJob`, or a step of a pipeline, has ended, by its state and the code and text of its error.

    None of one that has not.

    A quota that is exceeded is a stockout, too: other machines have other quotas. That a stockout
    has the code RESOURCE_EXHAUSTED, as such a quota has, is a guess, and so are that a job for
    whose machines nobody waits any longer is EXPIRED, and what tells a failure of the
    infrastructure.
    """
    state, error = job.state.name.removeprefix("JOB_STATE_"), job.error
    if state not in _ENDED:
        return None
    if state in ("SUCCEEDED", "CANCELLED"):
        return Ending(state.lower())
    if error.code == _RESOURCE_EXHAUSTED or state == "EXPIRED" or _STOCKOUT.search(error.message):
        return Ending.STOCKOUT
    is_internal = error.code in _INFRASTRUCTURE or _INTERNAL.search(error.message)
    return Ending.LOST if is_internal and not _NON_ZERO.search(error.message) else Ending.FAILED


def exit_code(message: str) -> int:
    """Returns the exit code of the replica that the error of a job blames; 1 if it names none."""
    match = _NON_ZERO.search(message)
    return (int(match[1]) if match else 0) or 1


URL = "https://logging.googleapis.com/v2/entries:list"
_LATE = datetime.timedelta(
    seconds=60
)  # Lines of one replica may arrive after later ones of another.
_TIMEOUT_S = 30.0


class CloudLogs:
    """The log of one job, of which each line is given once."""

    def __init__(self, project: str, job_id: str, roles: Sequence[str]) -> None:
        """`roles` are those of the job's worker pools, in order."""
        self._project, self._roles = project, roles
        self._filter = f'resource.type="ml_job" AND resource.labels.job_id="{job_id}"'
        self._written: dict[
            str, datetime.datetime
        ] = {}  # When each known line was written, by its id.

    def new(self) -> Iterator[tuple[str, str]]:
        """Yields replica and text of each line since the last call; raises what `refusals` does."""
        from google.auth.transport.requests import AuthorizedSession
        from google.cloud import aiplatform

        body = {
            "resourceNames": [f"projects/{self._project}"],
            "orderBy": "timestamp asc",
            "pageSize": 1000,
        }
        body["filter"] = self._filter
        if self._written:
            since = max(self._written.values()) - _LATE
            body["filter"] += f' AND timestamp>="{since.isoformat()}"'
            self._written = {key: time for key, time in self._written.items() if time >= since}
        session = AuthorizedSession(aiplatform.initializer.global_config.credentials)
        while True:
            with refusals("Cloud Logging"):
                answer = session.post(URL, json=body, timeout=_TIMEOUT_S)
                answer.raise_for_status()
                page = answer.json()
            for entry in page.get("entries", ()):
                if entry["insertId"] not in self._written:
                    self._written[entry["insertId"]] = datetime.datetime.fromisoformat(
                        entry["timestamp"]
                    )
                    # What Vertex AI itself writes is of the task `service`.
                    task = entry["resource"]["labels"].get("task_name", "vertex")
                    replica = replica_name(task, self._roles) or task
                    yield from ((replica, line) for line in _text(entry).splitlines())
            if not (token := page.get("nextPageToken")):
                return
            body["pageToken"] = token


def replica_name(text: str, roles: Sequence[str]) -> str:
    """Returns the replica that a text names as Vertex AI does, `workerpool1-0`; empty if it names none."""
    match = re.search(r"workerpool(\d+)-(\d+)", text)
    return f"{roles[int(match[1])]}/{match[2]}" if match and int(match[1]) < len(roles) else ""


def _text(entry: dict[str, Any]) -> str:
    payload = entry.get("jsonPayload")
    return (
        entry.get("textPayload", "")
        if payload is None
        else str(payload.get("message") or json.dumps(payload))
    )
