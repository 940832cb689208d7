"""The table of docs/PROJECT.md: which call needs which role."""

import functools
import pathlib
import re

_PAGE = pathlib.Path(__file__).parents[2] / "docs" / "PROJECT.md"
# Of Google's reference "IAM roles and permissions": of each role that setup grants what the table
# of docs/PROJECT.md names.
ROLES = {
    "storage.legacyBucketReader": {"storage.buckets.get"},
    "storage.objectUser": {
        f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list", "update")
    },
    "storage.objectViewer": {"storage.objects.get", "storage.objects.list"},
    "iam.serviceAccountUser": {"iam.serviceAccounts.actAs"},
    "iam.serviceAccountViewer": {"iam.serviceAccounts.getIamPolicy"},
    "artifactregistry.reader": {"artifactregistry.repositories.downloadArtifacts"},
    "artifactregistry.writer": {
        f"artifactregistry.repositories.{what}loadArtifacts" for what in ("up", "down")
    },
    "logging.logWriter": {"logging.logEntries.create"},
    "aiplatform.user": {
        *(
            "resourcemanager.projects.get",
            "aiplatform.tensorboardRuns.write",
            "aiplatform.models.upload",
        ),
        *(
            f"aiplatform.pipelineJobs.{verb}"
            for verb in ("create", "get", "list", "cancel", "delete")
        ),
        *(
            f"aiplatform.customJobs.{verb}"
            for verb in ("create", "get", "list", "cancel", "delete")
        ),
        *(f"aiplatform.batchPredictionJobs.{verb}" for verb in ("create", "get", "list", "cancel")),
        *(f"aiplatform.models.{verb}" for verb in ("get", "list", "update", "delete")),
    },
}


def calls() -> list[tuple[str, str, str, str]]:
    """Call, permission, role and accounts of each row."""
    table = _PAGE.read_text().split("| call | permission | role | of |\n")[1].split("\n\n")[0]
    return [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in table.splitlines()[1:]
    ]


def permission(method: str, host: str, path: str) -> str:
    """The permission of the first row that has a call, or nothing."""
    return next(
        (permission for form, permission in _forms() if form.fullmatch(_call(method, host, path))),
        "",
    )


def strangers(log: str) -> set[str]:
    """The calls in a log of the tests' cloud that no row of the table names, a resource's name as `*`.

    Those of Compute Engine are deploy/vm's, whose machines have accounts of their own.
    """
    seen = {re.match(r"(\w+) ([\w.-]+?)(/[^?]*)", line).groups() for line in log.splitlines()}
    return {
        _call(*call)
        for call in seen
        if not permission(*call) and not call[1].startswith("compute.")
    }


@functools.cache
def _forms() -> list[tuple[re.Pattern[str], str]]:
    """Returns the form of each call of each row, and its permission."""
    return [
        (re.compile(re.escape(form).replace(r"\*", "[^?]*")), permission)
        for call, permission, *_ in calls()
        for form in re.findall(r"`([A-Z]+ [^`]+)`", call)
    ]


def _call(method: str, host: str, path: str) -> str:
    """A call as the table writes it."""
    service = {"www.googleapis.com": "storage"}.get(
        host, host.split(".")[0].removeprefix("us-central1-")
    )
    path = path.removeprefix("/")
    return f"{method} {service}/{path.removeprefix('storage/') if service == 'storage' else path}"
