"""The label of what is ours in Google Cloud, credentials, and refusals as errors for users."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from common.errors import UserError

MANAGED_BY = ("managed_by", "tfrecord-training")  # the label of all that is ours
OURS = 'labels.{}="{}"'.format(*MANAGED_BY)  # by which Vertex AI lists that
LOGIN = "run: gcloud auth application-default login"


class RefusedError(UserError):
    """Google Cloud refuses a request, and would refuse it again."""


def is_ours(labels: Mapping[str, str]) -> bool:
    """Returns whether something with these labels was made by this program."""
    return labels.get(MANAGED_BY[0]) == MANAGED_BY[1]


def credentials() -> Any:
    """Returns what this machine has for Google Cloud, as of now; a UserError says how to log in if it has none."""
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    # Where there is no metadata server it is waited for: on a machine of Google's it answers at
    # once.
    os.environ.setdefault("GCE_METADATA_TIMEOUT", "1")
    try:
        default, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    except GoogleAuthError as error:
        raise UserError(f"no credentials for Google Cloud ({error}); {LOGIN}") from None
    return default


@contextlib.contextmanager
def refusals(subject: str) -> Iterator[None]:
    """Turns errors of Google's clients into ones that begin with `subject`.

    Raises:
      RefusedError: If a request is refused.
      UserError: If there are no valid credentials.
      ConnectionError: If a service does not answer, or says that it cannot now. It may have done
        what was asked.
    """
    from google.api_core.exceptions import (
        GoogleAPICallError,
        RetryError,
        ServerError,
        TooManyRequests,
        Unauthorized,
    )
    from google.auth.exceptions import GoogleAuthError, TransportError

    try:
        yield
    except (ServerError, TooManyRequests, RetryError, TransportError, OSError) as error:
        raise ConnectionError(f"{subject}: {' '.join(str(error).split())}") from None
    except (GoogleAuthError, Unauthorized) as error:
        raise UserError(f"{subject}: no credentials for Google Cloud ({error}); {LOGIN}") from None
    except GoogleAPICallError as error:
        raise RefusedError(f"{subject}: {' '.join(str(error).split())}") from None
