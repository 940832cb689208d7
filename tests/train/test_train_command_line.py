"""Tests of flags with other back ends: they are accepted, or refused as of no use."""

import pytest

from components.train.__main__ import parse
from tests.errors import user_error

CONTROL = ["--status=job", "--stop=job", "--logs=job"]


@pytest.mark.parametrize("control", CONTROL)
@pytest.mark.parametrize("place", ["vertex --project my-project", "kubernetes --namespace n"])
def test_control_takes_flags_of_place(control, place):
    parse(["--backend", *place.split(), control])


@pytest.mark.parametrize(
    ("words", "flag", "where"),
    [
        ("--backend docker --hosts x", "--hosts", "--backend docker"),
        # An empty one is set, too.
        ("--backend vertex --code=", "--code", "--backend vertex"),
        ("--backend vertex --logs job --image x", "--image", "--status, --stop and --logs"),
        ("--backend ssh --stop job --hosts x", "--hosts", "--status, --stop and --logs"),
    ],
)
def test_flag_of_no_use_is_refused(words, flag, where):
    with user_error(f"^{flag} has no use with {where}; leave it out"):
        parse(words.split())


@pytest.mark.parametrize(
    "flag", ["--strict", "--dry-run", "--cluster=x", "--max-restarts=0", "--command=x", "-- --x"]
)
def test_control_refuses_flags_of_run(flag):
    with user_error("has no use with --status, --stop and --logs"):
        parse([CONTROL[0], *flag.split()])
