"""Asks Vertex AI for custom jobs: `Jobs("my-project", "us-central1").create(body)`."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from trainer.base.errors import UserError

LOGIN = "run: gcloud auth application-default login"


class Jobs:
    """Custom jobs of a project in a location."""

    def __init__(self, project: str, location: str) -> None:
        """Asks nothing yet."""
        self._location = location
        self._parent = f"projects/{project}/locations/{location}"

    def create(self, body: Mapping[str, Any]) -> Any:
        """Has a job begin; what is refused is the user's to mend."""
        from google.api_core.exceptions import GoogleAPICallError
        from google.auth.exceptions import GoogleAuthError
        from google.cloud import aiplatform_v1 as v1

        try:
            job = v1.CustomJob.from_json(json.dumps(body))
            return self._client().create_custom_job(parent=self._parent, custom_job=job)
        except GoogleAuthError as error:
            raise UserError(f"no credentials for Google Cloud ({error}); {LOGIN}") from None
        except GoogleAPICallError as error:
            raise UserError(f"Vertex AI refused the job: {error.message}") from None

    def named(self, display_name: str) -> Any:
        """The job of this display name; None if there is none."""
        asked = {"parent": self._parent, "filter": f'display_name="{display_name}"'}
        return next(iter(self._client().list_custom_jobs(request=asked)), None)

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


def log_in_again() -> None:
    """Has Google's clients take the credentials that this machine has now: somebody may have logged in."""
    import google.auth
    from google.cloud import aiplatform

    with contextlib.suppress(google.auth.exceptions.GoogleAuthError):
        credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
        aiplatform.init(credentials=credentials)
