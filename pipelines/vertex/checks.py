"""Checks before a run is sent: for mistakes that a step would find only after hours.

    check_access(submission)   # UserError if something is wrong; a warning if it cannot be checked

What Vertex AI refuses at once is not checked here. Sources: the REST references of Vertex AI, Cloud
Storage and IAM, and the registry API (OCI distribution specification).
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import requests

from common.errors import UserError
from common.google_cloud import credentials, refusals
from pipelines.vertex.submission import Submission

_TIMEOUT_S = 4.0
_MANIFESTS = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in (
        "oci.image.manifest.v1",
        "oci.image.index.v1",
        "docker.distribution.manifest.v2",
        "docker.distribution.manifest.list.v2",
    )
)
_ACCOUNTS = "https://iam.googleapis.com/v1/projects/-/serviceAccounts"
_PROJECTS = "https://cloudresourcemanager.googleapis.com/v3/projects"
# Predefined roles with the permission to act as a service account.
_ROLES = (
    "roles/iam.serviceAccountUser",
    "roles/editor",
    "roles/owner",
    "roles/aiplatform.serviceAgent",
)
_WRITES = (
    "storage.objects.create",
    "storage.objects.get",
    "storage.objects.list",
    "storage.objects.delete",
)


class Asker:
    """Client of Google's REST APIs with the credentials of this machine.

    Raises:
      UserError: If there are no credentials.
    """

    def __init__(self) -> None:
        from google.auth.transport.requests import AuthorizedSession

        self._session = AuthorizedSession(credentials())

    def __call__(self, url: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Sends a request.

        Args:
          url: Address.
          body: Value to send as JSON with POST; `{}` for an empty body. None sends a GET.
          **headers: Headers of the request.

        Returns:
          The HTTP status, and the JSON of the answer. If the status is not 200 (404, for example),
          the latter has only a `message`.

        Raises:
          ConnectionError: If nothing answers in time, or if the server fails or gets too many
            requests (status 408, 429, or 500 and above).
          UserError: If the credentials are refused.
        """
        limits = {"timeout": _TIMEOUT_S, "max_allowed_time": _TIMEOUT_S}
        method = "GET" if body is None else "POST"
        with refusals(url.split("/")[2]):
            answer = self._session.request(
                method, url, json=body or None, headers=headers, **limits
            )
            status = answer.status_code
            if status == 200:
                return status, answer.json()
            if status >= 500 or status in (408, 429):
                raise requests.HTTPError(f"status {status}")
        message = f"HTTP status {status}"
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            message = " ".join(answer.json()["error"]["message"].split())
        return status, {"message": message}


def check_access(submission: Submission) -> None:
    """Checks a run's bucket, image and training account. Warns of what cannot be checked.

    A check whose service does not answer only prints a warning.

    Raises:
      UserError: If something is wrong (the message has all problems), or there are no credentials.
    """
    ask = Asker()
    problems: list[str] = []
    for check in (
        bucket_problems(ask, submission.bucket, submission.values["location"]),
        _image_problems(ask, submission.image),
        _account_problems(ask, submission),
    ):
        try:
            problems += check
        except ConnectionError as error:
            print(f"warning: not checked, as {error}", file=sys.stderr)
    if problems:
        raise UserError("\n       ".join(problems))


def project_problems(ask: Asker, project: str, location: str) -> Iterator[str]:
    """Yields a problem, at most one, if Vertex AI cannot be used in a project and region.

    Raises:
      ConnectionError: If Vertex AI does not answer.
      UserError: If the credentials are refused.
    """
    place = f"{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}"
    status, answer = ask(f"https://{place}/pipelineJobs?pageSize=1")
    if status != 200:
        yield (
            f"project {project} in {location}: {answer['message']}; enable Vertex AI "
            f"(gcloud services enable aiplatform.googleapis.com --project {project}) and ask for "
            "the role Vertex AI User"
        )


def bucket_problems(ask: Asker, bucket: str, location: str) -> Iterator[str]:
    """Yields a problem if a bucket is missing, in another region, or may not be read or written.

    Args:
      ask: Client.
      bucket: `gs://BUCKET`.
      location: Region of the run.

    Yields:
      A message with the remedy; at most one.

    Raises:
      ConnectionError: If Google Cloud does not answer, so that the check cannot be made.
      UserError: If the credentials are refused.
    """
    bucket = bucket.removeprefix("gs://")
    url = f"https://storage.googleapis.com/storage/v1/b/{bucket}"
    status, answer = ask(f"{url}?fields=location,locationType")
    # Without this check Google's client would make the bucket, even if its name is misspelt.
    if status == 404:
        yield (
            f"no bucket {bucket}; make it: gcloud storage buckets create gs://{bucket} "
            f"--location={location}"
        )
    elif status != 200:
        yield f"bucket {bucket}: {answer['message']}; ask for the role Storage Object User on it"
    elif answer["location"].lower() != location:
        yield (
            f"bucket {bucket} lies in {answer['location'].lower()} and the run in {location}; "
            "Vertex AI takes a bucket of its own region: gcloud storage buckets create gs://NAME "
            f"--location={location}"
        )
    else:
        status, answer = ask(
            f"{url}/iam/testPermissions?{'&'.join(f'permissions={each}' for each in _WRITES)}"
        )
        if missing := set(_WRITES) - set(answer.get("permissions", ())):
            yield (
                f"bucket {bucket}: no {', '.join(sorted(missing))}; ask for the role Storage "
                "Object User on it"
            )


def _image_problems(ask: Asker, image: str) -> Iterator[str]:
    """Yields a problem, at most one, if an image does not exist or cannot be pulled.

    Args:
      ask: Client.
      image: `HOST/NAME@sha256:DIGEST`.

    Raises:
      ConnectionError: If the registry does not answer.
      UserError: If the credentials are refused.
    """
    host, _, path = image.partition("/")
    name, _, digest = path.partition("@")
    status, answer = ask(f"https://{host}/v2/{name}/manifests/{digest}", Accept=_MANIFESTS)
    if status == 404:
        yield f"no image {image}; build and push it (make image, docker push), and give its digest"
    elif status != 200:
        yield f"image {image}: {answer['message']}; ask for the role Artifact Registry Reader"


def _account_problems(ask: Asker, submission: Submission) -> Iterator[str]:
    """Yields a problem if the training's service account is named but does not exist.

    Prints a warning if the run's account may not be allowed to act as that account. Only the run's
    account itself could ask Google Cloud for that. So the policies of the training's account and of
    the project are read. The permission may also come from a group or a folder, which these
    policies do not show.

    Raises:
      ConnectionError: If Google Cloud does not answer.
      UserError: If the credentials are refused.
    """
    account, actor = submission.settings.training_service_account, submission.service_account
    if not account:
        return
    status, policy = ask(f"{_ACCOUNTS}/{account}:getIamPolicy", {})
    if status == 404:
        yield f"no service account {account}"
        return
    _, project_policy = ask(f"{_PROJECTS}/{submission.values['project']}:getIamPolicy", {})
    member = f"serviceAccount:{actor}"
    bindings = [*policy.get("bindings", ()), *project_policy.get("bindings", ())]
    if not any(binding["role"] in _ROLES and member in binding["members"] for binding in bindings):
        print(
            "warning: the policies that you may read do not show whether "
            f"{actor or 'the default account'} may act as {account}; if not, the training fails; "
            "grant it: gcloud iam service-accounts add-iam-policy-binding "
            f"{account} --member={member} --role=roles/iam.serviceAccountUser",
            file=sys.stderr,
        )
