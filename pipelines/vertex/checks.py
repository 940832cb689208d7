"""Checks before a run is sent: mistakes that a step would find only after hours or in its own words.

    look(submission)   # UserError with all that is wrong; a warning where Google Cloud does not answer

Sources: the REST references of Vertex AI, Cloud Storage and IAM, and of the registry API (OCI distribution
specification).
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import requests

from common.errors import UserError
from common.google_cloud import LOGIN, credentials
from pipelines.vertex.submission import Submission

_TIMEOUT_S = 4.0
ACCELERATOR = "org.tfrecord-training.accelerator"  # label of our images: cpu or gpu
_MANIFESTS = ", ".join(f"application/vnd.{kind}+json" for kind in (
    "oci.image.manifest.v1", "oci.image.index.v1", "docker.distribution.manifest.v2", "docker.distribution.manifest.list.v2"
))  # fmt: skip
_ACCOUNTS = "https://iam.googleapis.com/v1/projects/-/serviceAccounts"
_PROJECTS = "https://cloudresourcemanager.googleapis.com/v3/projects"
# Predefined roles that have the right to act as an account.
_ROLES = ("roles/iam.serviceAccountUser", "roles/editor", "roles/owner", "roles/aiplatform.serviceAgent")
_SETS = ("group:", "domain:", "principalSet:", "allUsers", "allAuthenticatedUsers")  # that an account may be in
_WRITES = ("storage.objects.create", "storage.objects.get", "storage.objects.list", "storage.objects.delete")


class Asker:
    """Sends requests to Google's REST APIs with the credentials of this machine; answers are JSON."""

    def __init__(self) -> None:
        from google.auth.transport.requests import AuthorizedSession

        self._session = AuthorizedSession(credentials())

    def __call__(self, url: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Returns HTTP status and content of the answer; a body is sent with POST, `{}` as an empty one.

        Raises:
          ConnectionError: If nothing answers, or a broken server.
          UserError: If the credentials are refused.
        """
        from google.auth.exceptions import GoogleAuthError, TransportError

        limits = {"timeout": _TIMEOUT_S, "max_allowed_time": _TIMEOUT_S}
        method = "GET" if body is None else "POST"
        try:
            sent = self._session.request(method, url, json=body or None, headers=headers, **limits)
            if sent.status_code >= 500 or sent.status_code in (408, 429):
                raise requests.HTTPError(f"status {sent.status_code}")
            with contextlib.nullcontext() if sent.status_code == 200 else contextlib.suppress(ValueError):
                return sent.status_code, json.loads(sent.content or b"{}")
            return sent.status_code, {}
        except (TransportError, requests.RequestException, json.JSONDecodeError) as error:
            raise ConnectionError(f"{url.split('/')[2]} does not answer ({error!r}); try again later") from None
        except GoogleAuthError as error:
            raise UserError(f"the credentials for Google Cloud are refused ({error}); {LOGIN}") from None

    @property
    def member(self) -> str:
        """The submitter as a policy names it; a person's address is not known here."""
        account = getattr(self._session.credentials, "service_account_email", None)
        return f"serviceAccount:{account}" if account else "user:YOUR_ADDRESS"


def look(submission: Submission) -> None:
    """Applies all rules: a UserError has what is wrong by each. A rule without an answer is only warned of."""
    ask = Asker()
    place = submission.job["location"]
    rules = (
        lambda: project_problems(ask, submission.job["project"], place),
        lambda: bucket_problems(ask, submission.job["pipeline_root"].split("/")[2], place),
        lambda: _image(submission, ask),
        lambda: _run_account(submission, ask),
        lambda: _training_account(submission, ask),
    )
    problems: list[str] = []
    unanswered: list[str] = []
    for rule in rules:
        try:
            problems += rule()
        except ConnectionError as error:
            unanswered.append(str(error).partition(";")[0])
    if problems:
        raise UserError("\n       ".join(problems))
    for reason in dict.fromkeys(unanswered):
        print(f"warning: not checked, as {reason}", file=sys.stderr)


def project_problems(ask: Asker, project: str, location: str) -> Iterator[str]:
    """Vertex AI can be asked in that project and region."""
    place = f"{location}-aiplatform.googleapis.com/v1/projects/{project}/locations/{location}"
    status, answer = ask(f"https://{place}/pipelineJobs?pageSize=1")
    if status != 200:
        yield (
            f"project {project} in {location}: {_said(status, answer)}; enable Vertex AI "
            f"(gcloud services enable aiplatform.googleapis.com --project {project}) and ask for the role Vertex AI User"
        )


def bucket_problems(ask: Asker, bucket: str, location: str) -> Iterator[str]:
    """The bucket is there, in the region of the run, and may be written to."""
    status, answer = ask(f"https://storage.googleapis.com/storage/v1/b/{bucket}?fields=location,locationType")
    if status == 404:  # Google's client would make one, even of a name that was misspelt
        yield f"no bucket {bucket}; make it: gcloud storage buckets create gs://{bucket} --location={location}"
    elif status != 200:
        yield f"bucket {bucket}: {_said(status, answer)}; ask for the role Storage Object User on it"
    elif answer["location"].lower() != location:
        yield (
            f"bucket {bucket} lies in {answer['location'].lower()} and the run in {location}; Vertex AI takes a bucket "
            f"of its own region: gcloud storage buckets create gs://NAME --location={location}"
        )
    else:
        wanted = "&".join(f"permissions={permission}" for permission in _WRITES)
        status, answer = ask(f"https://storage.googleapis.com/storage/v1/b/{bucket}/iam/testPermissions?{wanted}")
        if missing := set(_WRITES) - set(answer.get("permissions", ())):
            yield f"bucket {bucket}: no {', '.join(sorted(missing))}; ask for the role Storage Object User on it"


def _image(submission: Submission, ask: Asker) -> Iterator[str]:
    """The image is there, and is one for GPUs where a pool has them."""
    host, _, rest = submission.image.partition("/")
    name, _, digest = rest.partition("@")
    status, manifest = ask(f"https://{host}/v2/{name}/manifests/{digest}", Accept=_MANIFESTS)
    if status == 404:
        yield f"no image {submission.image}; build and push it (make image, docker push), and give its digest"
    elif status != 200:
        yield f"image {submission.image}: {_said(status, manifest)}; ask for the role Artifact Registry Reader"
    elif any(pool.gpus for pool in submission.cluster.pools.values()) and "config" in manifest:
        _, config = ask(f"https://{host}/v2/{name}/blobs/{manifest['config']['digest']}")
        if config.get("config", {}).get("Labels", {}).get(ACCELERATOR) == "cpu":
            yield "the cluster has GPUs, and the image is one for CPUs, which would leave them idle; make image-gpu"


def _run_account(submission: Submission, ask: Asker) -> Iterator[str]:
    """Refuses a submitter who may not act as the run's account."""
    if account := submission.body["serviceAccount"]:
        status, answer = ask(
            f"{_ACCOUNTS}/{account}:testIamPermissions", {"permissions": ["iam.serviceAccounts.actAs"]}
        )
        if status == 404:
            yield f"no service account {account}"
        elif status != 200 or "permissions" not in answer:
            yield f"{ask.member.partition(':')[2]} may not act as {account}; grant it: {_grant(ask.member, account)}"


def _training_account(submission: Submission, ask: Asker) -> Iterator[str]:
    """Refuses a run's account, which makes the training job, that may not act as the training's.

    Only that account could ask Google Cloud, so policies are read: the training account's own, and the
    project's. A right that may come from elsewhere, as from a group or a folder, is only warned of.
    """
    account = submission.job_settings.training_service_account
    actor = submission.body["serviceAccount"]
    if not account:
        return
    if not actor:
        raise ConnectionError(f"--service-account is missing: whether the default may act as {account}")
    member = f"serviceAccount:{actor}"
    project = f"{_PROJECTS}/{submission.job['project']}"
    status, policy = ask(f"{_ACCOUNTS}/{account}:getIamPolicy", {})
    if status == 404:
        yield f"no service account {account}"
        return
    bindings = policy.get("bindings", [])
    if _lets_act(bindings, [member], _ROLES):
        return
    project_status, policy = ask(f"{project}:getIamPolicy", {})
    bindings += policy.get("bindings", [])
    if _lets_act(bindings, [member], _ROLES):
        return
    may_be_hidden = {status, project_status} != {200} or _lets_act(
        bindings, [member, *_SETS], [*_ROLES, "projects/", "organizations/"]
    )
    if may_be_hidden or "parent" in ask(project)[1]:
        raise ConnectionError(
            f"the policies that you may read do not show whether {actor} may act as {account} "
            f"(if it may not: {_grant(member, account)})"
        )
    yield f"{actor} may not act as {account}; grant it: {_grant(member, account)}"


def _lets_act(bindings: Sequence[Any], members: Sequence[str], roles: Sequence[str]) -> bool:
    """Returns whether one of these roles is bound to one of these members; each is the beginning of a name."""
    return any(
        each["role"].startswith(tuple(roles)) and any(name.startswith(tuple(members)) for name in each["members"])
        for each in bindings
    )


def _grant(member: str, account: str) -> str:
    return (
        f"gcloud iam service-accounts add-iam-policy-binding {account} --member={member} "
        "--role=roles/iam.serviceAccountUser"
    )


def _said(status: int, answer: Any) -> str:
    """What an answer says of its failure."""
    error = answer.get("error", {}) if isinstance(answer, dict) else {}
    message = error.get("message") if isinstance(error, dict) else None
    return " ".join(str(message or f"HTTP status {status}").split())
