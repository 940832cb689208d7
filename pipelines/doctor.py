"""Checks this machine, an image or a project of Google Cloud, and says how to mend what is wrong.

python pipelines/doctor.py                                # this machine, with any Python
docker run --rm IMAGE pipelines.doctor --image            # an image, from inside
# A project as well, for runs on Vertex AI; this changes nothing.
python pipelines/doctor.py --project PROJECT --bucket gs://BUCKET

Each check yields its problems, in the form `what is wrong; what to do`. Those of the machine also
run in Python 3.8 without any packages, since a Python that is too old is one of the problems.
"""

from __future__ import annotations

import importlib.util
import pathlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator

# Lets a Python in which the project is not installed find its modules.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common.cli import Parser, run_cli
from common.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("common", "trainer", "components", "pipelines")
PERMISSIONS = (
    "aiplatform.customJobs.create",
    "aiplatform.models.upload",
    "aiplatform.pipelineJobs.create",
)


def main() -> int:
    """Runs the command line. Returns the exit code, 1 if a check has found a problem, else 0.

    Raises:
      UserError: If the arguments are wrong.
    """
    p = Parser(
        prog="pipelines/doctor.py",
        description="Checks this machine, an image or a project, and says what to do.",
    )
    p.add_argument(
        "--image", action="store_true", help="check the image that this runs in, and no machine"
    )
    p.add_argument("--project", help="id of a project of Google Cloud to check too; with --bucket")
    p.add_argument("--bucket", help="gs://BUCKET for everything that runs write")
    p.add_argument("--location", default="us-central1", help="region of the runs")
    args = p.parse_args()
    if bool(args.project) != bool(args.bucket):
        raise UserError("--project and --bucket belong together; give both")
    checks = (
        {"modules": check_modules()}
        if args.image
        else {"python": check_python(), "packages": check_packages()}
    )
    if args.project:
        checks["project"] = check_project(args.project, args.bucket, args.location)
    return int(any([has_problems(name, check) for name, check in checks.items()]))


def has_problems(name: str, check: Iterable[str]) -> bool:
    """Runs a check, prints its problems or that there are none, and returns whether there are any.

    A UserError, ConnectionError or ImportError that the check raises is its last problem.
    """
    problems: list[str] = []
    try:
        problems.extend(check)
    except (UserError, ConnectionError, ImportError) as error:
        problems.append(str(error))
    print("\n".join(f"✗ {name}: {problem}" for problem in problems) or f"✓ {name}", flush=True)
    return bool(problems)


def check_python() -> Iterator[str]:
    """Yields a problem if the project does not support this version of Python."""
    declared = re.findall(
        r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text()
    )
    first, beyond = map(int, declared[0])
    if not (3, first) <= sys.version_info < (3, beyond):
        version = ".".join(map(str, sys.version_info[:3]))
        yield (
            f"{sys.executable} is Python {version}; install 3.{first} to 3.{beyond - 1}, "
            f"then: make setup PYTHON=python3.{beyond - 1}"
        )


def check_packages() -> Iterator[str]:
    """Yields a problem if this Python lacks `tensorflow` or `kfp`, which stand for all packages."""
    if not all(map(importlib.util.find_spec, ("tensorflow", "kfp"))):
        yield f"none in {sys.executable}; make setup, then run this with .venv/bin/python"


def check_modules() -> Iterator[str]:
    """Yields a problem for each module of the project that cannot be imported.

    It imports all of them, since a step may run any. A problem is a text with the name of the
    module, the error, and what to do.
    """
    from common.quiet import without_advice

    with without_advice():
        for package in PACKAGES:
            path = importlib.import_module(package).__path__
            # `onerror` ignores a package that fails when the walk enters it. The loop imports the
            # same package, and reports it.
            for module in pkgutil.walk_packages(path, f"{package}.", onerror=lambda name: None):
                try:
                    importlib.import_module(module.name)
                except Exception as error:
                    yield (
                        f"{module.name} ({error!r}); install what is missing (requirements.lock), "
                        "and build again"
                    )


def check_project(project: str, bucket: str, location: str) -> Iterator[str]:
    """Yields the problems of a project, a bucket and the user's permissions for runs on Vertex AI.

    Raises:
      UserError: While iterating, if there are no credentials.
      ConnectionError: While iterating, if Google Cloud does not answer.
    """
    from pipelines.vertex.checks import Asker, bucket_problems, project_problems

    ask = Asker()
    yield from project_problems(ask, project, location)
    url = f"https://cloudresourcemanager.googleapis.com/v3/projects/{project}:testIamPermissions"
    _, answer = ask(url, {"permissions": PERMISSIONS})
    if missing := sorted({*PERMISSIONS}.difference(answer.get("permissions", ()))):
        grant = (
            f"gcloud projects add-iam-policy-binding {project} --member=user:YOU "
            "--role=roles/aiplatform.user"
        )
        yield f"runs may not be started: no {', '.join(missing)}; an owner: {grant}"
    yield from bucket_problems(ask, bucket, location)


if __name__ == "__main__":
    run_cli(main)
