"""Says what this machine, an image or a project of Google Cloud lacks, and what to do: `python pipelines/doctor.py --help`.

python pipelines/doctor.py                                # this machine, with whatever Python there
is python pipelines/doctor.py --project PROJECT --bucket gs://BUCKET    # and what runs on Vertex AI
need; changes nothing docker run --rm IMAGE pipelines.doctor --image            # an image, from
inside

A check yields its problems: `what is wrong; what to do`. Those of the machine also run in a Python
3.8 without any packages, since a Python that is too old is one of the problems.
"""

from __future__ import annotations

import importlib.util
import pathlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator

# So that a Python in which nothing is installed finds the project too.
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
    """Runs the command line. Returns 1 if a check has found a problem."""
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
    """Prints the problems that a check finds, or that it finds none. Returns whether there are any."""
    try:
        problems = list(check)
    except (UserError, ConnectionError, ImportError) as error:
        problems = [str(error)]
    print("\n".join(f"✗ {name}: {problem}" for problem in problems) or f"✓ {name}", flush=True)
    return bool(problems)


def check_python() -> Iterator[str]:
    """Checks that the project supports this version."""
    declared = re.search(
        r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text()
    )
    first, beyond = map(int, declared.groups())
    if not (3, first) <= sys.version_info < (3, beyond):
        version = ".".join(map(str, sys.version_info[:3]))
        yield (
            f"{sys.executable} is Python {version}; install 3.{first} to 3.{beyond - 1}, "
            f"then: make setup PYTHON=python3.{beyond - 1}"
        )


def check_packages() -> Iterator[str]:
    """Checks that this Python has the project's packages."""
    if not all(map(importlib.util.find_spec, ("tensorflow", "kfp"))):
        yield f"none in {sys.executable}; make setup, then run this with .venv/bin/python"


def check_modules() -> Iterator[str]:
    """Checks that every module of the project can be imported: each may be what a step runs."""
    from common.quiet import without_advice

    with without_advice():
        for package in PACKAGES:
            path = importlib.import_module(package).__path__
            # `onerror`: a package that fails is reported at its own turn, and not when the walk
            # enters it.
            for module in pkgutil.walk_packages(path, f"{package}.", onerror=lambda name: None):
                try:
                    importlib.import_module(module.name)
                except Exception as error:
                    yield f"{module.name} ({error!r}); install what is missing (requirements.lock), and build again"


def check_project(project: str, bucket: str, location: str) -> Iterator[str]:
    """Checks what runs on Vertex AI need of a project; without credentials only that they are missing."""
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
