"""What an image has to have, checked from inside a container of it."""

import importlib
import os
import pkgutil
import tempfile
from collections.abc import Iterator

from pipelines.doctoring.findings import FAILED, OK, WARNING, Finding
from pipelines.doctoring.machine_checks import python
from trainer import code_version
from trainer.base.quiet import without_advice

PACKAGES = ("trainer", "components", "pipelines")


def checks() -> Iterator[Finding]:
    """All of them, the fast ones first."""
    yield python()
    yield user()
    yield writable()
    with without_advice():
        found = [modules(), version()]
    yield from found


def user() -> Finding:
    """Whether the processes have no more rights than they need."""
    if os.getuid():
        return Finding("user", OK, f"runs as user {os.getuid()}")
    meaning = "runs as root: what breaks out of a step owns the machine, and files in mounted folders are root's"
    return Finding("user", WARNING, meaning, "make image without RUN_AS, or docker run --user")


def writable() -> Finding:
    """Whether the steps can write where libraries keep their caches, and temporary files."""
    for place in (os.path.expanduser("~"), tempfile.gettempdir()):
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(b"x")
        except OSError as error:
            meaning = f"{place} cannot be written ({error.strerror}), where libraries keep caches and temporary files"
            return Finding("home", FAILED, meaning, f"give the user a home, or mount one: docker run --tmpfs {place}")
    return Finding("home", OK, f"{os.path.expanduser('~')} and {tempfile.gettempdir()} can be written")


def modules() -> Finding:
    """Whether every module of the project can be imported: each may be what a step runs."""
    names, broken = [], []
    for package in PACKAGES:
        path = importlib.import_module(package).__path__
        # `onerror`: a package that fails is told when its turn comes here, and not when the walk goes into it.
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
    """What the image is, by its own account."""
    import tensorflow as tf

    built_for = "CUDA" if tf.sysconfig.get_build_info()["is_cuda_build"] else "CPU"
    what = f"{code_version()}, TensorFlow {tf.__version__} for {built_for}"
    if os.environ.get("CODE_VERSION"):
        return Finding("version", OK, what)
    meaning = f"{what}; its models cannot tell which commit made them"
    return Finding("version", WARNING, meaning, "make image, which sets CODE_VERSION")
