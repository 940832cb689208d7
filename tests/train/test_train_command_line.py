"""Tests of every flag with every back end: it is accepted, or refused as of no use."""

import dataclasses
import itertools
import re

import pytest
from train_settings import GIVEN

from common.errors import UserError
from components.train.__main__ import BACKENDS, parse

FLAGS = sorted(
    {field.name for backend in BACKENDS.values() for field in dataclasses.fields(backend.Options)}
)
VALUES = {"code": "", "max_machine_hours": "5", "grace_period_s": "60"}  # An empty one is set, too.
VALUES |= {name: value[0] if isinstance(value, tuple) else value for name, value in GIVEN.items()}
RUN = ["--strict", "--dry-run", "--cluster=x", "--max-restarts=0", "--command=x", "--job-dir=x"]


def typed(name: str) -> list[str]:
    """Returns the flag as typed, with some value."""
    return [f"--{name.replace('_', '-')}", VALUES.get(name, "x")]


def test_help_shows_every_flag(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit):
        parse(["--help"])
    flags = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert flags > {typed(name)[0] for name in FLAGS} | {flag.partition("=")[0] for flag in RUN}


@pytest.mark.parametrize(("name", "backend"), itertools.product(FLAGS, BACKENDS))
def test_flag_of_other_backend_is_refused(name: str, backend: str):
    argv = ["--backend", backend, *typed(name)]
    if name in {field.name for field in dataclasses.fields(BACKENDS[backend].Options)}:
        assert parse(argv).backend == backend
    else:
        with pytest.raises(
            UserError, match=f"^{typed(name)[0]} has no use with --backend {backend}; leave it out"
        ):
            parse(argv)


@pytest.mark.parametrize("control", ["--status", "--stop"])
@pytest.mark.parametrize(("name", "backend"), itertools.product(FLAGS, BACKENDS))
def test_control_refuses_flags_of_run(control: str, name: str, backend: str):
    argv = [control, "job", "--backend", backend]
    assert parse(argv).backend == backend
    if name in BACKENDS[backend].control_flags:
        assert parse([*argv, *typed(name)]).backend == backend
        return
    for more in (typed(name), *([flag] for flag in RUN), ["--", "--x"]):
        with pytest.raises(UserError, match="has no use with --status and --stop"):
            parse([*argv, *more])
