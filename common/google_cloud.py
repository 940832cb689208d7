"""Google Cloud: the label of resources of this program, credentials, and errors for users."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from common.errors import UserError

MANAGED_BY = ("managed_by", "tfrecord-training")  # Label of every resource that we create.
OURS = 'labels.{}="{}"'.format(*MANAGED_BY)  # Filter by which Vertex AI lists these.
LOGIN = "run: gcloud auth application-default login"
_ROLES = "docs/PROJECT.md lists the role for each permission"


class RefusedError(UserError):
    """Google Cloud has refused a request, and would refuse it again."""


def is_ours(labels: Mapping[str, str]) -> bool:
    """Returns whether labels of a resource in Google Cloud mark it as made by this program.

    Its label is `managed_by: tfrecord-training`.
    """
    return labels.get(MANAGED_BY[0]) == MANAGED_BY[1]


def credentials() -> Any:
    """Returns this machine's default credentials for Google Cloud, looked up anew in each call.

    Sets the environment variable GCE_METADATA_TIMEOUT to 1 second if it is not set.

    Raises:
      UserError: If there are none; the message says how to log in.
    """
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    # Outside Google Cloud the lookup waits for a metadata server that does not exist. Inside, that
    # server answers at once, so that one second is enough.
    os.environ.setdefault("GCE_METADATA_TIMEOUT", "1")
    try:
        default, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    except GoogleAuthError as error:
        raise UserError(f"no credentials for Google Cloud ({error}); {LOGIN}") from None
    return default


def explained(error: str) -> str:
    """Returns an error of Google Cloud in one line, and a page to read if it is about permissions.

    The page is `docs/PROJECT.md`, with a role for each permission.
    """
    line = " ".join(error.split())
    is_hinted = "permission" in line.lower() and _ROLES not in line
    return f"{line}; {_ROLES}" if is_hinted else line


@contextlib.contextmanager
def refusals(subject: str) -> Iterator[None]:
    """Context manager that turns errors of Google's clients into ones that begin with `subject`.

    Raises:
      RefusedError: If Google Cloud refuses a request.
      UserError: If there are no valid credentials.
      ConnectionError: If a service does not answer, or says that it cannot do so now; it may
        nevertheless have done what was requested. Also for any other `OSError` in the block.
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
        raise RefusedError(f"{subject}: {explained(str(error))}") from None
