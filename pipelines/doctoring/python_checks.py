"""Checks of the Python that runs this, on a machine and in an image."""

import importlib.metadata
import pathlib
import re
import sys

from pipelines.doctoring.findings import FAILED, OK, Finding

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = "tfrecord-training-pipeline"


def python() -> Finding:
    """Whether the project supports this version."""
    declared = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    first, beyond = (int(minor) for minor in declared.groups())
    version = "{}.{}.{}".format(*sys.version_info)
    if (3, first) <= sys.version_info < (3, beyond):
        return Finding("python", OK, f"{version}, {sys.executable}")
    newest = f"3.{beyond - 1}"
    return Finding(
        "python",
        FAILED,
        f"{version} ({sys.executable}); TensorFlow and the project are for 3.{first} to {newest}",
        f"install one of these, then: make setup PYTHON=python{newest}",
    )


def packages() -> Finding:
    """Whether this Python has the packages that the project declares, in versions that it allows."""
    try:
        from packaging.requirements import Requirement

        declared = [Requirement(text) for text in importlib.metadata.requires(PROJECT) or ()]
    except ImportError:
        return Finding(
            "packages",
            FAILED,
            f"the project is not installed in {sys.executable}",
            "make setup, then run this with .venv/bin/python",
        )
    installed = {}
    for requirement in declared:
        try:
            installed[requirement.name] = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            installed[requirement.name] = ""

    def fits(requirement: Requirement) -> bool:
        version = installed[requirement.name]
        return bool(version) and requirement.specifier.contains(version, prereleases=True)

    always = [one for one in declared if not one.marker or one.marker.evaluate({"extra": ""})]
    wrong = [
        f"{one.name} {installed[one.name] or 'is missing'}, not {one.specifier}" for one in always if not fits(one)
    ]
    # An environment has one build of TensorFlow, and each is an extra.
    if not any(fits(one) for one in declared if one.name in ("tensorflow", "tensorflow-cpu")):
        wrong.append("TensorFlow is missing or has the wrong version")
    if wrong:
        return Finding("packages", FAILED, "; ".join(wrong), "rm -rf .venv; make setup (an image: build it again)")
    return Finding("packages", OK, f"{len(always)} packages and TensorFlow, as declared")
