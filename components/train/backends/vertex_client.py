"""Asks Vertex AI for custom jobs: `Jobs("my-project", "us-central1").create(body)`."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from common.errors import UserError
from common.google_cloud import LOGIN, OURS, credentials

# States of a custom job.
ENDED = {f"JOB_STATE_{each}" for each in ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")}
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
        """Has a job begin, unless there is one of its display name; errors are those of `told`, and NoCapacity."""
        from google.api_core.exceptions import TooManyRequests
        from google.cloud import aiplatform_v1 as v1

        with told():
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


@contextlib.contextmanager
def told() -> Iterator[None]:
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
