"""Asks Vertex AI for custom jobs and Cloud Logging for what their replicas have written.

    Jobs("my-project", "us-central1").create(body)
    logs = CloudLogs("my-project", job_id, roles=("chief", "worker"))
    for replica, line in logs.new(session): ...   # ("worker/1", "step 10")

The filter of the log is that of `gcloud ai custom-jobs stream-logs`; the fields of an entry are those of the REST reference of
`LogEntry`.
"""

import contextlib
import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.errors import UserError
from common.google_cloud import LOGIN, OURS, credentials
from components.train.supervision.restart_policy import Ending

# States of a custom job.
ENDED = {f"JOB_STATE_{each}" for each in ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")}
# The first is what Vertex AI's page on the training service says. A Spot machine that is taken "fails with a STOCKOUT
# error", says the page on Spot VMs; that this word is in the error's text is a guess.
_STOCKOUT = re.compile("resources are insufficient|stockout|quota|RESOURCE_EXHAUSTED", re.IGNORECASE)
_RESOURCE_EXHAUSTED = 8
# Codes ABORTED, INTERNAL and UNAVAILABLE, and the text in "Understand the custom training service".
_INFRASTRUCTURE, _INTERNAL = {10, 13, 14}, re.compile("internal error", re.IGNORECASE)
_NON_ZERO = re.compile(r"non-zero status of (\d+)")
_EXPIRED = re.compile("credentials|plugin failed| 401 ", re.IGNORECASE)


class Refused(UserError):
    """Vertex AI refuses what is asked for, and would again."""


class NoCapacity(Refused):
    """Vertex AI refuses a job for lack of quota; other machines have other quotas."""


class Jobs:
    """Custom jobs of a project in a location."""

    def __init__(self, project: str, location: str) -> None:
        self._location = location
        self._parent = f"projects/{project}/locations/{location}"

    def create(self, body: Mapping[str, Any]) -> Any:
        """Has a job begin, unless there is one of its display name; errors are those of `google_errors_as_user_errors`, and NoCapacity."""
        from google.api_core.exceptions import TooManyRequests
        from google.cloud import aiplatform_v1 as v1

        with google_errors_as_user_errors():
            # Of a job that was asked for before, the answer may have been lost.
            if job := self.named(body["displayName"]):
                return job
            job = v1.CustomJob.from_json(json.dumps(body))
            try:
                return self._client().create_custom_job(parent=self._parent, custom_job=job)
            except TooManyRequests as error:
                raise NoCapacity(f"Vertex AI refused: {_reason(error)}") from None

    def named(self, display_name: str) -> Any:
        """Our job of this display name; None if there is none."""
        request = {"parent": self._parent, "filter": f'{OURS} AND display_name="{display_name}"'}
        return next(iter(self._client().list_custom_jobs(request=request)), None)

    def get(self, name: str) -> Any:
        """A job as it is now."""
        return self._client().get_custom_job(name=name)

    def cancel(self, name: str) -> None:
        """Has a job end; its replicas are told to, and save."""
        self._client().cancel_custom_job(name=name)

    def session(self) -> Any:
        """For what has no client here: requests with the same credentials."""
        from google.auth.transport.requests import AuthorizedSession
        from google.cloud import aiplatform

        return AuthorizedSession(aiplatform.initializer.global_config.credentials)

    def _client(self) -> Any:
        from google.cloud import aiplatform  # 2 s

        config = aiplatform.initializer.global_config
        return config.create_client(aiplatform.utils.JobClientWithOverride, location_override=self._location)


def ending(job: Any) -> Ending:
    """Returns how a `CustomJob`, or a step of a pipeline, has ended, by its state and the code and text of its error.

    A quota that is exceeded is a stockout, too: other machines have other quotas. That a stockout has the code
    RESOURCE_EXHAUSTED, as such a quota has, is a guess, and so are that a job for whose machines nobody waits any longer
    is EXPIRED, and what tells a failure of the infrastructure.
    """
    state, error = job.state.name.removeprefix("JOB_STATE_"), job.error
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


@contextlib.contextmanager
def google_errors_as_user_errors() -> Iterator[None]:
    """Around what is asked of Google Cloud: its refusals are the user's to mend, its own failures are not.

    Raises:
      Refused: If it refuses.
      UserError: If the credentials are no more good.
      ConnectionError: If it does not answer; whether it has done what was asked is not known then.
    """
    from google.api_core import exceptions
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except (GoogleAuthError, exceptions.Unauthorized) as error:
        raise UserError(f"no credentials for Google Cloud ({error}); {LOGIN}") from None
    except (exceptions.ServerError, exceptions.TooManyRequests, exceptions.RetryError) as error:
        raise ConnectionError(f"Vertex AI does not answer ({' '.join(str(error).split())}); try again later") from None
    except exceptions.GoogleAPICallError as error:
        raise Refused(f"Vertex AI refused: {_reason(error)}") from None


def _reason(error: Any) -> str:
    """The message of an error; by REST it begins with the request."""
    return re.sub(r"^[A-Z]+ https://\S+: ", "", error.message)


def log_in_again(project: str) -> None:
    """Has Google's clients take the credentials that this machine has now: somebody may have logged in."""
    from google.cloud import aiplatform

    with contextlib.suppress(UserError):
        aiplatform.init(project=project, credentials=credentials())  # without a project it would change to REST


def expired(error: Exception) -> bool:
    """Whether an error says that the credentials are no more good; over gRPC a plugin of its fails then."""
    from google.api_core.exceptions import Unauthorized
    from google.auth.exceptions import GoogleAuthError

    return isinstance(error, GoogleAuthError | Unauthorized) or bool(_EXPIRED.search(str(error)))


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
