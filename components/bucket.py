"""Folders of Cloud Storage by Google's client, which copies there; TensorFlow's file system reads and writes files."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.base.errors import UserError

MANAGED_BY = ("managed_by", "tfrecord-training")  # the label of all that is ours
OURS = 'labels.{}="{}"'.format(*MANAGED_BY)  # by which Vertex AI lists that
LOGIN = "run: gcloud auth application-default login"


def is_ours(labels: Mapping[str, str]) -> bool:
    """Whether something with these labels was made by this program."""
    return labels.get(MANAGED_BY[0]) == MANAGED_BY[1]


def credentials() -> Any:
    """Those that this machine has for Google Cloud, as of now; a UserError says how to log in if it has none."""
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    # Where there is no metadata server it is waited for: on a machine of Google's it answers at once.
    os.environ.setdefault("GCE_METADATA_TIMEOUT", "1")
    try:
        found, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    except GoogleAuthError as error:
        raise UserError(f"no credentials for Google Cloud ({error}); {LOGIN}") from None
    return found


@contextlib.contextmanager
def refusals(told: str) -> Iterator[None]:
    """Around what is asked of Google Cloud: what it refuses is a `UserError` that begins with `told`."""
    from google.api_core.exceptions import GoogleAPICallError, RetryError
    from google.auth.exceptions import GoogleAuthError

    try:
        yield
    except GoogleAuthError as error:
        raise UserError(f"{told}: no credentials for Google Cloud ({error}); {LOGIN}") from None
    except (GoogleAPICallError, RetryError, OSError) as error:
        raise UserError(f"{told}: {' '.join(str(error).split())}") from None


@contextlib.contextmanager
def opened(place: str) -> Iterator[tuple[Any, str]]:
    """The bucket that `gs://BUCKET/NAME` lies in, and the name; what cannot be done there is a `UserError`."""
    from google.cloud import storage  # 1 s

    bucket, _, name = place.removeprefix("gs://").partition("/")
    with refusals(f"{place} cannot be read"):
        # A project is nothing that reading takes, and whoever logs in need not have one by default.
        yield storage.Client(project=None).bucket(bucket), name


def copy_folder(source: str, target: str) -> None:
    """Copies the objects of a folder to another one, whose objects nobody else writes; their bytes stay in the store."""
    from google.cloud.storage.retry import DEFAULT_RETRY

    with opened(source) as (bucket, folder), opened(target) as (there, new):
        for blob in bucket.list_blobs(prefix=f"{folder}/"):
            copy, token, more = there.blob(f"{new}/{blob.name.removeprefix(f'{folder}/')}"), None, True
            while more:  # a large object takes several requests
                token, *_ = copy.rewrite(blob, token=token, retry=DEFAULT_RETRY)
                more = token is not None
