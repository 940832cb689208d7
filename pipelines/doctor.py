"""Says what this machine, an image or a project of Google Cloud lacks, and what to do: `python pipelines/doctor.py --help`.

python pipelines/doctor.py                                # this machine, with whatever Python there is
python pipelines/doctor.py --project PROJECT --bucket gs://BUCKET    # and what runs on Vertex AI need; changes nothing
docker run --rm IMAGE pipelines.doctor --image            # an image, from inside

A check is a function without arguments. It returns what is well, or raises a `UserError`, or a `Caution`, of two parts:
`what is wrong; what to do`. All but the checks of images and projects also run in a Python 3.8 without any packages, since
a Python that is too old is one of the faults to report.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import pathlib
import pkgutil
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

# So that a Python in which nothing is installed finds the project too.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from common.cli import Parser, run_cli
from common.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[1]
OK, WARNING, FAILED = "✓", "!", "✗"
PACKAGES = ("common", "trainer", "components", "pipelines")
PERMISSIONS = {f"aiplatform.{name}" for name in ("pipelineJobs.create", "customJobs.create", "models.upload")}
_MIN_DISK_GB = 5  # a run of the digits takes 20 MB, the environment 2 GB
_MIN_MEMORY_GB = 4  # two or three replicas of TensorFlow beside the pipeline


class Caution(UserError):
    """Something that does not trouble everybody."""


class Finding(NamedTuple):
    """Outcome of a check: its name and status, what that means, and what to do unless all is well."""

    name: str
    status: str
    meaning: str
    repair: str = ""

    def __str__(self) -> str:
        line = f"{self.status} {self.name:<12} {self.meaning}"
        return f"{line}\n  {'':<12} -> {self.repair}" if self.repair else line


def main() -> int:
    """Runs the command line. Returns 1 if a check has failed."""
    p = Parser(
        prog="pipelines/doctor.py", description="Checks this machine, an image or a project, and says what to do."
    )
    p.add_argument("--image", action="store_true", help="check the image that this runs in, and no machine")
    p.add_argument("--project", help="id of a project of Google Cloud to check too; with --bucket")
    p.add_argument("--bucket", help="gs://BUCKET for everything that runs write")
    p.add_argument("--location", default="us-central1", help="region of the runs")
    args = p.parse_args()
    if bool(args.project) != bool(args.bucket):
        raise UserError("--project and --bucket belong together; give both")
    findings = run_checks(IMAGE if args.image else MACHINE)
    if args.project and not args.image:
        findings = itertools.chain(findings, check_project(args.project, args.bucket, args.location))
    code = 0
    for finding in findings:
        print(finding, flush=True)
        code |= finding.status == FAILED
    return code


def run_checks(checks: Mapping[str, Callable[[], str]]) -> Iterator[Finding]:
    """Yields the outcome of each check, but of those whose packages are not installed."""
    for name, check in checks.items():
        try:
            yield Finding(name, OK, check())
        except (UserError, ConnectionError) as error:
            meaning, _, repair = str(error).rpartition("; ")
            yield Finding(name, WARNING if isinstance(error, Caution) else FAILED, meaning, repair)
        except ImportError:
            continue  # the check `packages` says so


def check_python() -> str:
    """Checks that the project supports this version."""
    declared = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    first, beyond = map(int, declared.groups())
    version = "{}.{}.{}, {}".format(*sys.version_info[:3], sys.executable)
    if not (3, first) <= sys.version_info < (3, beyond):
        raise UserError(
            f"{version}; TensorFlow and the project are for 3.{first} to 3.{beyond - 1}; "
            f"install one of these, then: make setup PYTHON=python3.{beyond - 1}"
        )
    return version


def check_packages() -> str:
    """Checks that this Python has the project's packages."""
    if not all(map(importlib.util.find_spec, ("tensorflow", "kfp"))):
        raise UserError(
            f"the project's packages are not installed in {sys.executable}; "
            "make setup, then run this with .venv/bin/python"
        )
    return "installed"


def check_memory() -> str:
    """Checks that a cluster of processes fits."""
    from common.machine import available_bytes

    free_gb = available_bytes() / 1e9
    meaning = f"{free_gb:.1f} GB are free"
    if free_gb < _MIN_MEMORY_GB:
        raise Caution(f"{meaning}: the system may kill replicas; use --cluster clusters/local.yaml")
    return meaning


def check_disk() -> str:
    """Checks that runs, and temporary files beside them, have room."""
    # Not the choice of `tempfile`, which silently goes on to another directory where other programs fail.
    free_gb = {}
    for place in (str(ROOT), os.environ.get("TMPDIR") or "/tmp"):
        try:
            free_gb[place] = shutil.disk_usage(place).free / 1e9
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(b"x" * 65536)
        except OSError as error:
            raise UserError(f"{place} cannot be written ({error.strerror}); free some, or make it yours") from None
    fullest = min(free_gb, key=free_gb.__getitem__)
    meaning = f"{free_gb[fullest]:.1f} GB are free in {fullest}"
    if free_gb[fullest] < _MIN_DISK_GB:
        raise Caution(f"{meaning}; free some: make clean, or .venv/bin/python pipelines/runs.py delete --help")
    return meaning


def check_modules() -> str:
    """Checks that every module of the project can be imported: each may be what a step runs."""
    from common.quiet import without_advice

    names = []
    broken = []
    with without_advice():
        for package in PACKAGES:
            path = importlib.import_module(package).__path__
            # `onerror`: a package that fails is reported at its own turn, and not when the walk enters it.
            for module in pkgutil.walk_packages(path, f"{package}.", onerror=lambda name: None):
                names.append(module.name)
                try:
                    importlib.import_module(module.name)
                except Exception as error:
                    broken.append(f"{module.name} ({type(error).__name__}: {error})")
    if broken:
        raise UserError(
            f"{len(broken)} of {len(names)} modules cannot be imported: {', '.join(broken[:3])}; "
            "install what is missing (requirements.lock), and build again"
        )
    return f"all {len(names)} can be imported"


def check_version() -> str:
    """Checks that the image knows its commit, which its models record."""
    import tensorflow as tf

    from common.version import code_version

    built_for = "CUDA" if tf.sysconfig.get_build_info()["is_cuda_build"] else "CPU"
    meaning = f"{code_version()}, TensorFlow {tf.__version__} for {built_for}"
    if not os.environ.get("CODE_VERSION"):
        raise Caution(f"{meaning}; its commit is unknown; make image, which sets CODE_VERSION")
    return meaning


def check_project(project: str, bucket: str, location: str) -> Iterator[Finding]:
    """Returns what a project has or lacks for runs on Vertex AI; without credentials only that they are missing."""
    from pipelines.vertex.checks import Asker, bucket_problems, project_problems

    try:
        ask = Asker()
        problems = {
            "project": project_problems(ask, project, location),
            "permissions": _permission_problems(ask, project),
            "bucket": bucket_problems(ask, bucket.removeprefix("gs://"), location),
        }
    except UserError as error:
        problems = {"credentials": iter([str(error)])}
    return run_checks({name: functools.partial(_require_none, messages) for name, messages in problems.items()})


def _permission_problems(ask: Callable, project: str) -> Iterator[str]:
    """Yields the permissions that starting runs needs and that these credentials lack."""
    url = f"https://cloudresourcemanager.googleapis.com/v3/projects/{project}:testIamPermissions"
    _, answer = ask(url, {"permissions": sorted(PERMISSIONS)})
    if missing := sorted(PERMISSIONS.difference(answer.get("permissions", ()))):
        grant = f"gcloud projects add-iam-policy-binding {project} --member=user:YOU --role=roles/aiplatform.user"
        yield f"runs may not be started: no {', '.join(missing)}; an owner: {grant}"


def _require_none(problems: Iterator[str]) -> str:
    for problem in problems:
        raise UserError(problem)
    return "as runs on Vertex AI need it"


MACHINE = {"python": check_python, "packages": check_packages, "memory": check_memory, "disk": check_disk}
IMAGE = {"python": check_python, "modules": check_modules, "version": check_version}

if __name__ == "__main__":
    run_cli(main)
