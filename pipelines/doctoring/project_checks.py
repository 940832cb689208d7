"""What a project of Google Cloud has to have for runs on Vertex AI: asked, and nothing changed."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipelines.doctoring.findings import FAILED, OK, WARNING, Finding

_API = "https://{}.googleapis.com/"
_ANSWER_S = 30
_SERVICES = {f"{name}.googleapis.com" for name in ("aiplatform", "artifactregistry", "cloudresourcemanager", "storage")}
_PERMISSIONS = {f"aiplatform.{call}" for call in ("pipelineJobs.create", "customJobs.create", "models.upload")}
_FORMATS = {"DOCKER", "KFP"}  # of repositories, for images and specs
_CONTINENTS = {"us": "us-", "eu": "europe-", "asia": "asia-"}
# Service, path and arguments of a request to its content; what went wrong is in `error`.
_Ask = Callable[..., dict[str, Any]]


def checks(project: str, bucket: str, location: str) -> Iterator[Finding]:
    """All of them; nothing more is asked once there are no credentials, or no project."""
    found, ask = credentials()
    yield found
    if not ask:
        return
    about = ask("cloudresourcemanager", f"v3/projects/{project}")
    if "error" in about:
        yield Finding("project", FAILED, f"{project}: {about['error']['message']}", "gcloud projects list shows yours")
        return
    yield Finding("project", OK, project)
    again = f"deploy/setup --project {project} --region {location}"
    listed = ask("serviceusage", f"v1/projects/{project}/services?filter=state:ENABLED&pageSize=200")
    enabled = {service["name"].rsplit("/", 1)[1] for service in listed.get("services", ())}
    yield _complete("services", _SERVICES, enabled, again)
    asked = {"permissions": sorted(_PERMISSIONS)}
    held = ask("cloudresourcemanager", f"v3/projects/{project}:testIamPermissions", "POST", json=asked)
    yield _complete(
        "permissions", _PERMISSIONS, held.get("permissions", ()), _grant(f"projects {project}", "aiplatform.user")
    )
    yield bucket_there(ask, bucket.removeprefix("gs://"), location)
    listed = ask("artifactregistry", f"v1/projects/{project}/locations/{location}/repositories")
    formats = {repository["format"] for repository in listed.get("repositories", ())}
    yield _complete("repositories", _FORMATS, formats, again, WARNING)


def credentials() -> tuple[Finding, _Ask | None]:
    """Whether Google knows who asks, and a way to ask."""
    import google.auth.exceptions
    import google.auth.transport.requests
    import requests

    try:
        who, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
        if not who.valid:
            who.refresh(google.auth.transport.requests.Request())
    except google.auth.exceptions.GoogleAuthError as error:
        meaning = f"Google does not know who asks: {str(error).splitlines()[0]}"
        return Finding("credentials", FAILED, meaning, "gcloud auth application-default login"), None
    session = google.auth.transport.requests.AuthorizedSession(who)

    def ask(service: str, path: str, method: str = "GET", **arguments: Any) -> dict[str, Any]:
        try:
            return session.request(method, _API.format(service) + path, timeout=_ANSWER_S, **arguments).json()
        except (requests.RequestException, google.auth.exceptions.GoogleAuthError) as error:
            return {"error": {"message": str(error)}}

    return Finding("credentials", OK, getattr(who, "service_account_email", "those of a user")), ask


def bucket_there(ask: _Ask, bucket: str, location: str) -> Finding:
    """Whether the bucket can be written, and lies where the machines will be."""
    about = ask("storage", f"storage/v1/b/{bucket}")
    if "error" in about:
        meaning = f"gs://{bucket}: {about['error']['message']}"
        return Finding("bucket", FAILED, meaning, f"mend its name, or make it: deploy/setup --bucket {bucket}")
    place, pair = about["location"].lower(), about.get("customPlacementConfig", {}).get("dataLocations", ())
    meaning = f"gs://{bucket} is in {place}, and the runs in {location}: what they read and write is slower, and billed"
    if location.startswith(_CONTINENTS.get(place, "-")):
        return Finding("bucket", WARNING, meaning, f"a bucket in {location} costs less")
    if location not in (place, *map(str.lower, pair)):
        return Finding("bucket", FAILED, meaning, f"--location {place}, or a bucket in {location}")
    create = "storage.objects.create"
    held = ask("storage", f"storage/v1/b/{bucket}/iam/testPermissions?permissions={create}").get("permissions", ())
    found = _complete("bucket", {create}, held, _grant(f"storage buckets gs://{bucket}", "storage.objectUser"))
    return found if found.status != OK else Finding("bucket", OK, f"gs://{bucket} in {place}")


def _complete(name: str, needed: set[str], found: Iterable[str], repair: str, status: str = FAILED) -> Finding:
    if missing := sorted(needed.difference(found)):
        return Finding(name, status, f"missing: {', '.join(missing)}", repair)
    return Finding(name, OK, ", ".join(sorted(needed)))


def _grant(resource: str, role: str) -> str:
    group, _, name = resource.rpartition(" ")
    return f"an owner: gcloud {group} add-iam-policy-binding {name} --member=user:YOU --role=roles/{role}"
