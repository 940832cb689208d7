"""What a project of Google Cloud has to have for runs on Vertex AI: asked, and nothing changed."""

from collections.abc import Iterator

from common.errors import UserError
from pipelines.doctoring.findings import FAILED, OK, Finding
from pipelines.vertex.checks import Asker, bucket_problems, project_problems

_PERMISSIONS = {f"aiplatform.{call}" for call in ("pipelineJobs.create", "customJobs.create", "models.upload")}


def checks(project: str, bucket: str, location: str) -> Iterator[Finding]:
    """All of them; nothing is asked where there are no credentials."""
    try:
        ask = Asker()
    except UserError as error:
        yield _failed("credentials", str(error))
        return
    yield _finding("project", project_problems(ask, project, location))
    yield _finding("permissions", _permissions(ask, project))
    yield _finding("bucket", bucket_problems(ask, bucket.removeprefix("gs://"), location))


def _finding(name: str, problems: Iterator[str]) -> Finding:
    """The first of the problems; a question that is refused or not answered is one, too."""
    try:
        problem = next(problems, "")
    except (UserError, ConnectionError) as error:
        problem = str(error)
    return _failed(name, problem) if problem else Finding(name, OK, "as runs on Vertex AI need it")


def _failed(name: str, problem: str) -> Finding:
    """A finding of a message that ends in its repair."""
    meaning, _, repair = problem.rpartition("; ")
    return Finding(name, FAILED, meaning, repair)


def _permissions(ask: Asker, project: str) -> Iterator[str]:
    url = f"https://cloudresourcemanager.googleapis.com/v3/projects/{project}:testIamPermissions"
    _, answer = ask(url, {"permissions": sorted(_PERMISSIONS)})
    if missing := sorted(_PERMISSIONS.difference(answer.get("permissions", ()))):
        grant = f"gcloud projects add-iam-policy-binding {project} --member=user:YOU --role=roles/aiplatform.user"
        yield f"runs may not be started: no {', '.join(missing)}; an owner: {grant}"
