"""What a project of Google Cloud has to have for runs on Vertex AI: asked, and nothing changed."""

from collections.abc import Iterator

from pipelines.doctoring.findings import FAILED, OK, WARNING, Finding
from pipelines.vertex.checks import Asker, bucket_problems, project_problems
from trainer.base.errors import UserError

_PERMISSIONS = {f"aiplatform.{call}" for call in ("pipelineJobs.create", "customJobs.create", "models.upload")}
_FORMATS = {"DOCKER", "KFP"}  # of repositories, for images and specs


def checks(project: str, bucket: str, location: str) -> Iterator[Finding]:
    """All of them; nothing is asked where there are no credentials."""
    try:
        ask = Asker()
    except UserError as error:
        yield _told("credentials", str(error))
        return
    yield _finding("project", project_problems(ask, project, location))
    yield _finding("permissions", _permissions(ask, project))
    yield _finding("bucket", bucket_problems(ask, bucket.removeprefix("gs://"), location))
    yield _finding("repositories", _repositories(ask, project, location), WARNING)


def _finding(name: str, problems: Iterator[str], status: str = FAILED) -> Finding:
    """The first of what is wrong; what was not answered, or answered for nobody, is wrong too."""
    try:
        found = next(problems, "")
    except (UserError, ConnectionError) as error:
        found, status = str(error), FAILED
    return _told(name, found, status) if found else Finding(name, OK, "as runs on Vertex AI need it")


def _told(name: str, problem: str, status: str = FAILED) -> Finding:
    """Of a message, which ends in its repair."""
    meaning, _, repair = problem.rpartition("; ")
    return Finding(name, status, meaning, repair)


def _permissions(ask: Asker, project: str) -> Iterator[str]:
    url = f"https://cloudresourcemanager.googleapis.com/v3/projects/{project}:testIamPermissions"
    _, answer = ask(url, {"permissions": sorted(_PERMISSIONS)})
    if missing := sorted(_PERMISSIONS.difference(answer.get("permissions", ()))):
        grant = f"gcloud projects add-iam-policy-binding {project} --member=user:YOU --role=roles/aiplatform.user"
        yield f"runs may not be started: no {', '.join(missing)}; an owner: {grant}"


def _repositories(ask: Asker, project: str, location: str) -> Iterator[str]:
    url = f"https://artifactregistry.googleapis.com/v1/projects/{project}/locations/{location}/repositories"
    _, answer = ask(url)
    if missing := sorted(_FORMATS.difference(each["format"] for each in answer.get("repositories", ()))):
        setup = f"deploy/setup --project {project} --region {location}"
        yield f"no repository of format {' or '.join(missing)} in {location}: builds have nowhere to push to; {setup}"
