"""Clients of Vertex AI for custom jobs, and of Cloud Logging for the output of their replicas.

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

_ENDED = {"SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED"}  # States of a job.
# Texts of errors for lack of machines. The first is in Vertex AI's page on the training service.
# The page on Spot VMs says that a job whose Spot machine is taken away "fails with a STOCKOUT
# error"; that the error's text contains this word is a guess.
_STOCKOUT = re.compile(
    "resources are insufficient|stockout|quota|RESOURCE_EXHAUSTED", re.IGNORECASE
)
# Text of an error about the rate of requests, which has the code of a quota of machines too.
_RATE = re.compile("requests per minute", re.IGNORECASE)
_RESOURCE_EXHAUSTED = 8  # Code of google.rpc.Code.
# Codes ABORTED, INTERNAL and UNAVAILABLE of google.rpc.Code, and the text that Vertex AI's page
# "Understand the custom training service" has for failures of its infrastructure.
_INFRASTRUCTURE, _INTERNAL = {10, 13, 14}, re.compile("internal error", re.IGNORECASE)
_NON_ZERO = re.compile(r"non-zero status of (\d+)")
_SERVICE = "Vertex AI"  # Begins error messages.


class Ending(enum.StrEnum):
    """Way in which an attempt ended."""

    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    # There were no machines or no quota for them, or they were taken away.
    STOCKOUT = "stockout"
    # The infrastructure failed: the machines, or the pipeline step that had launched the job.
    LOST = "lost"
    FAILED = "failed"


class NoCapacityError(RefusedError):
    """Error of a job that Vertex AI refuses for lack of quota; other machines may have quota."""


class Jobs:
    """Custom jobs of a project in a location.

    Every method raises the errors of `common.google_cloud.refusals`: RefusedError if Vertex AI
    refuses the request, UserError without valid credentials, ConnectionError if it does not answer.
    """

    def __init__(self, project: str, location: str) -> None:
        self._project, self._location = project, location

    def create(self, body: Mapping[str, Any]) -> str:
        """Submits a custom job.

        Args:
          body: Request body of `customJobs.create`.

        Returns:
          The resource name, `projects/.../customJobs/ID`.

        Raises:
          NoCapacityError: If there is no quota for its machines.
          RefusedError: If Vertex AI refuses the request for another reason.
          UserError: If there are no valid credentials.
          ConnectionError: If Vertex AI does not answer, or gets too many requests; the job may
            nevertheless have been created.
        """
        from google.api_core.exceptions import TooManyRequests
        from google.cloud import aiplatform_v1 as v1

        with refusals(_SERVICE):
            job = v1.CustomJob.from_json(json.dumps(body))
            try:
                parent, client = self._parent(self._location), self._client(self._location)
                return client.create_custom_job(parent=parent, custom_job=job).name
            except TooManyRequests as error:
                if _RATE.search(str(error)):
                    raise
                raise NoCapacityError(f"{_SERVICE}: {error}") from None

    def named(self, display_name: str, location: str) -> Any:
        """Returns a `CustomJob` with this display name that this program made, or None.

        This program's jobs have the label `managed_by: tfrecord-training`.

        Args:
          display_name: Display name of the job.
          location: Location in which it was submitted; empty for that of this object.

        Raises:
          UserError: If Vertex AI refuses the request, or there are no valid credentials.
          ConnectionError: If Vertex AI does not answer.
        """
        location = location or self._location
        request = {
            "parent": self._parent(location),
            "filter": f'{OURS} AND display_name="{display_name}"',
        }
        with refusals(_SERVICE):
            return next(iter(self._client(location).list_custom_jobs(request=request)), None)

    def get(self, name: str) -> Any:
        """Returns the `CustomJob` with this resource name, in its present state.

        Raises:
          UserError: If there is no such job, Vertex AI refuses the request for another reason, or
            there are no valid credentials.
          ConnectionError: If Vertex AI does not answer.
        """
        with refusals(_SERVICE):
            return self._client(location_of(name)).get_custom_job(name=name)

    def cancel(self, name: str) -> None:
        """Asks Vertex AI to cancel a job, whose replicas then save; does not wait for its end.

        Args:
          name: Resource name of the job.

        Raises:
          UserError: If Vertex AI refuses the request, or there are no valid credentials.
          ConnectionError: If Vertex AI does not answer.
        """
        with refusals(_SERVICE):
            self._client(location_of(name)).cancel_custom_job(name=name)

    def _parent(self, location: str) -> str:
        return f"projects/{self._project}/locations/{location}"

    def _client(self, location: str) -> Any:
        from google.cloud import aiplatform  # Takes 2 s, so it is imported only when needed.

        config = aiplatform.initializer.global_config
        return config.create_client(
            aiplatform.utils.JobClientWithOverride, location_override=location
        )


def location_of(name: str) -> str:
    """Returns the location in a resource name, `projects/PROJECT/locations/LOCATION/...`."""
    return name.split("/")[3]


class Outages:
    """Tolerates outages of Google Cloud in calls that the caller repeats."""

    def __init__(self, project: str, subject: str, show: Callable[[str], None]) -> None:
        """Keeps the settings.

        Args:
          project: Id of the project, for new credentials.
          subject: Name of what goes on during an outage, such as "the job", for messages.
          show: Shows a message.
        """
        self._project, self._subject, self._show = project, subject, show
        self._reasons: set[str] = set()

    @contextlib.contextmanager
    def tolerated(self) -> Iterator[None]:
        """Suppresses an `OSError` or `UserError` in the block, unless it is a refusal.

        After such an error the clients get new credentials, if there are any, and its message is
        shown if it is the first of its text. The block ends early then, so the caller has to repeat
        it.

        Raises:
          RefusedError: If the block raises it. Errors of other types are raised as well.
        """
        from google.cloud import aiplatform

        try:
            yield
        except RefusedError:
            raise
        except (OSError, UserError) as error:
            if (reason := str(error)) not in self._reasons:
                self._reasons.add(reason)
                self._show(f"{reason}; {self._subject} goes on, and so does waiting for it")
            # The user may have logged in again meanwhile. Without a project, the clients would
            # switch to REST.
            with contextlib.suppress(UserError):
                aiplatform.init(project=self._project, credentials=credentials())


def ending(job: Any) -> Ending | None:
    """Returns how a job has ended; None if it has not ended.

    SUCCEEDED and CANCELLED are states. Of other states, EXPIRED, the code RESOURCE_EXHAUSTED, or an
    error about insufficient resources or a quota is a STOCKOUT, since other machines have other
    quotas. An error about requests per minute is LOST; so are the codes ABORTED, INTERNAL and
    UNAVAILABLE, and the text "internal error", unless the text names the exit status of a replica.
    The rest is FAILED. Some rules are guesses: that a stockout has the code RESOURCE_EXHAUSTED, as
    an exceeded quota has; that a job that waited too long for its machines is EXPIRED; and the
    codes and text of LOST.

    Args:
      job: A `CustomJob`, or another message with its `state` and `error`, such as a pipeline step.
    """
    state, error = job.state.name.removeprefix("JOB_STATE_"), job.error
    if state not in _ENDED:
        return None
    if state in ("SUCCEEDED", "CANCELLED"):
        return Ending(state.lower())
    if _RATE.search(error.message):
        return Ending.LOST
    if error.code == _RESOURCE_EXHAUSTED or state == "EXPIRED" or _STOCKOUT.search(error.message):
        return Ending.STOCKOUT
    is_internal = error.code in _INFRASTRUCTURE or _INTERNAL.search(error.message)
    return Ending.LOST if is_internal and not _NON_ZERO.search(error.message) else Ending.FAILED


def exit_code(message: str) -> int:
    """Returns the exit code of a replica in a job's error message; 1 if it has none."""
    match = _NON_ZERO.search(message)
    return int(match[1]) if match else 1


URL = "https://logging.googleapis.com/v2/entries:list"
# A line may arrive this long after later lines of other replicas.
_LATE = datetime.timedelta(seconds=60)
_TIMEOUT_S = 30.0


class CloudLogs:
    """The log of a custom job in Cloud Logging, from which each entry is read once."""

    def __init__(self, project: str, job_id: str, roles: Sequence[str]) -> None:
        """Sets the filter; sends no request.

        Args:
          project: Id of the project.
          job_id: Last part of the job's resource name.
          roles: Roles of the job's worker pools, in their order.
        """
        self._project, self._roles = project, roles
        self._filter = f'resource.type="ml_job" AND resource.labels.job_id="{job_id}"'
        # Time stamp of each entry that was read, by its id.
        self._written: dict[str, datetime.datetime] = {}

    def new(self) -> Iterator[tuple[str, str]]:
        """Yields the lines that have arrived since the last call; the first call yields all.

        A line that arrives when one with a time more than 60 s later was read before is left out.

        Yields:
          Name of the replica, such as `worker/1`, and text of the line. A line of no replica has
          the task's name (`service` is Vertex AI itself), or `vertex` if it has none.

        Raises:
          RefusedError: If Cloud Logging refuses the request.
          UserError: If there are no valid credentials.
          ConnectionError: If Cloud Logging does not answer.
        """
        from google.auth.transport.requests import AuthorizedSession
        from google.cloud import aiplatform

        wanted = self._filter
        if self._written:
            # Recent entries are read again, as late ones may be among them. `_written` tells which
            # of them are new, and forgets those that are older.
            since = max(self._written.values()) - _LATE
            wanted += f' AND timestamp>="{since.isoformat()}"'
            self._written = {key: time for key, time in self._written.items() if time >= since}
        body = {
            "resourceNames": [f"projects/{self._project}"],
            "orderBy": "timestamp asc",
            "pageSize": 1000,
            "filter": wanted,
        }
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
                    # Lines of Vertex AI itself have the task name `service`.
                    task = entry["resource"]["labels"].get("task_name", "vertex")
                    replica = replica_name(task, self._roles) or task
                    yield from ((replica, line) for line in _text(entry).splitlines())
            if not (token := page.get("nextPageToken")):
                return
            body["pageToken"] = token


def replica_name(text: str, roles: Sequence[str]) -> str:
    """Returns the name of the replica that a text of Vertex AI mentions, such as `workerpool1-0`.

    Args:
      text: Name of a task, or an error message.
      roles: Roles of the job's worker pools, in their order.

    Returns:
      Name such as `worker/0`; empty if the text mentions none, or a pool that is not in `roles`.
    """
    match = re.search(r"workerpool(\d+)-(\d+)", text)
    return f"{roles[int(match[1])]}/{match[2]}" if match and int(match[1]) < len(roles) else ""


def _text(entry: dict[str, Any]) -> str:
    payload = entry.get("jsonPayload")
    return (
        entry.get("textPayload", "")
        if payload is None
        else str(payload.get("message") or json.dumps(payload))
    )
