"""What an image has to have, checked from inside a container of it."""

import importlib
import os
import pkgutil
from collections.abc import Iterator

from common.quiet import without_advice
from common.version import code_version
from pipelines.doctoring.findings import FAILED, OK, WARNING, Finding
from pipelines.doctoring.machine_checks import python

PACKAGES = ("common", "trainer", "components", "pipelines")


def checks() -> Iterator[Finding]:
    """All of them, the fast ones first."""
    yield python()
    with without_advice():
        findings = [modules(), version()]
    yield from findings


def modules() -> Finding:
    """Checks that every module of the project can be imported: each may be what a step runs."""
    names, broken = [], []
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        # `onerror`: a package that fails is reported when its turn comes here, and not when the walk goes into it.
        for module in pkgutil.walk_packages(path, f"{package}.", onerror=lambda name: None):
            names.append(module.name)
            try:
                importlib.import_module(module.name)
            except Exception as error:
                broken.append(f"{module.name} ({type(error).__name__}: {error})")
    if broken:
        meaning = f"{len(broken)} of {len(names)} modules cannot be imported: {'; '.join(broken[:3])}"
        return Finding("modules", FAILED, meaning, "install what is missing (requirements.lock), and build again")
    return Finding("modules", OK, f"all {len(names)} can be imported")


def version() -> Finding:
    """Checks that the image knows its commit, which its models record."""
    import tensorflow as tf

    built_for = "CUDA" if tf.sysconfig.get_build_info()["is_cuda_build"] else "CPU"
    meaning = f"{code_version()}, TensorFlow {tf.__version__} for {built_for}"
    if os.environ.get("CODE_VERSION"):
        return Finding("version", OK, meaning)
    return Finding("version", WARNING, f"{meaning}; its commit is unknown", "make image, which sets CODE_VERSION")
