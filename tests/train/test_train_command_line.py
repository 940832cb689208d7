"""Every flag times everything that could heed it: it is taken there, or refused."""

import dataclasses
import itertools
import re

import pytest
from train_settings import GIVEN

from common.errors import UserError
from components.train.__main__ import BACKENDS, parse

FLAGS = {
    name: re.sub("_", "-", f"--{name}")
    for backend in BACKENDS.values()
    for name in backend.Options.__dataclass_fields__
}
VALUES = {"code": "", "max_machine_hours": "5", "grace_period_s": "60"}  # An empty one is set, too.
VALUES |= {name: value[0] if isinstance(value, tuple) else value for name, value in GIVEN.items()}
RUN = ["--strict", "--dry-run", "--cluster=x", "--max-restarts=0", "--command=x", "--job-dir=x"]


def typed(name: str) -> list[str]:
    """The flag as typed, with some value."""
    return [FLAGS[name], VALUES.get(name, "x")]


def test_help_shows_every_flag(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit):
        parse(["--help"])
    flags = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    assert flags > {*FLAGS.values()} and flags > {flag.partition("=")[0] for flag in RUN}


@pytest.mark.parametrize(("name", "backend"), itertools.product(FLAGS, BACKENDS))
def test_flag_of_another_back_end_is_refused(name: str, backend: str):
    argv = ["--backend", backend, *typed(name)]
    if name in {field.name for field in dataclasses.fields(BACKENDS[backend].Options)}:
        assert parse(argv).backend == backend
    else:
        with pytest.raises(UserError, match=f"^{FLAGS[name]} has no use with --backend {backend}; leave it out"):
            parse(argv)


@pytest.mark.parametrize("control", ["--status", "--stop"])
@pytest.mark.parametrize(("name", "backend"), itertools.product(FLAGS, BACKENDS))
def test_flag_of_run_is_refused_without_one(control: str, name: str, backend: str):
    argv = [control, "job", "--backend", backend]
    assert parse(argv).backend == backend
    if name in BACKENDS[backend].control_flags:
        assert parse([*argv, *typed(name)]).backend == backend
        return
    for more in (typed(name), *([flag] for flag in RUN), ["--", "--x"]):
        with pytest.raises(UserError, match="has no use with --status and --stop"):
            parse([*argv, *more])
