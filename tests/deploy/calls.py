"""The table of docs/PROJECT.md, which call needs which role, and what bindings of roles allow."""

import functools
import pathlib
import re

import yaml

from tests.root import ROOT

_PAGE = ROOT / "docs" / "PROJECT.md"
GOOGLE = yaml.safe_load(pathlib.Path(__file__).with_name("google.yaml").read_text())
NEEDS = yaml.safe_load(pathlib.Path(__file__).with_name("needs.yaml").read_text())
ROLES: dict[str, list[str]] = GOOGLE["roles"]
_EXCEPT = re.compile(r'!resource\.name\.startsWith\("([^"]+)"\)')


def calls():
    """Call, permission, role and accounts of each row."""
    table = _PAGE.read_text().split("| call | permission | role | of |\n")[1].split("\n\n")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()[1:]]
    return [tuple(cell.strip() for cell in row) for row in rows]


def permission(method, host, path):
    """The permission of the first row that has a call, or nothing."""
    call = f"{method} {host.split('.')[0].removeprefix('us-central1-')}{path}"
    return next((permission for form, permission in _forms() if form.fullmatch(call)), "")


def allows(bindings, email, wanted, resource, name=""):
    """Returns whether bindings give an account a permission for a resource, or an object in it.

    Bindings are tuples of resource, role, member and condition.
    """
    path = f"projects/_/buckets/{resource.removeprefix('gs://')}/objects/{name}"
    return any(
        (bound, member) == (resource, f"serviceAccount:{email}")
        and wanted in ROLES[role.removeprefix("roles/")]
        and _holds(condition, path)
        for bound, role, member, condition in bindings
    )


def short(email):
    """The account in the table of docs/PROJECT.md, or nothing."""
    return match[1] if (match := re.search(r"training-(\w+)@", email)) else ""


@functools.cache
def _forms():
    """Returns the form of each call of each row, and its permission."""
    return [
        (re.compile(re.escape(form).replace(r"\*", "[^?]*")), permission)
        for call, permission, *_ in calls()
        for form in re.findall(r"`([A-Z]+ [^`]+)`", call)
    ]


def _holds(condition, name):
    """Returns whether a condition holds for a name; it may only exclude prefixes."""
    expression = condition.removeprefix("expression=").partition(",title=")[0]
    assert not _EXCEPT.sub("", expression).replace(" && ", ""), f"condition {condition}"
    return not name.startswith(tuple(_EXCEPT.findall(expression)))
