"""The table of docs/PROJECT.md: which call needs which role."""

import functools
import pathlib
import re

import yaml

from tests.root import ROOT

_PAGE = ROOT / "docs" / "PROJECT.md"
GOOGLE = yaml.safe_load(pathlib.Path(__file__).with_name("google.yaml").read_text())
ROLES: dict[str, list[str]] = GOOGLE["roles"]


def calls():
    """Call, permission, role and accounts of each row."""
    table = _PAGE.read_text().split("| call | permission | role | of |\n")[1].split("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[1:]]
    return [tuple(cell.strip() for cell in row) for row in rows]


def permission(method, host, path):
    """The permission of the first row that has a call, or nothing."""
    call = _call(method, host, path)
    return next((permission for form, permission in _forms() if form.fullmatch(call)), "")


def strangers(log):
    """The calls in a log of the tests' cloud that no row of the table names.

    Those of Compute Engine are deploy/vm's, whose machines have accounts of their own.
    """
    seen = set(re.findall(r"^(\w+) (?!compute\.)([\w.-]+?)(/[^?]*)", log, re.MULTILINE))
    return {_call(*call) for call in seen if not permission(*call)}


@functools.cache
def _forms():
    """Returns the form of each call of each row, and its permission."""
    return [
        (re.compile(re.escape(form).replace(r"\*", "[^?]*")), permission)
        for call, permission, *_ in calls()
        for form in re.findall(r"`([A-Z]+ [^`]+)`", call)
    ]


def _call(method, host, path):
    """A call as the table writes it."""
    service = host.split(".")[0].removeprefix("us-central1-").replace("www", "storage")
    return f"{method} {service}{path}".replace("storage/storage/", "storage/")
