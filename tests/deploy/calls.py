"""The table of docs/PROJECT.md: which call needs which role."""

import pathlib
import re

_PAGE = pathlib.Path(__file__).parents[2] / "docs" / "PROJECT.md"


def calls() -> list[tuple[str, str, str, str]]:
    """Call, permission, role and accounts of each row."""
    table = _PAGE.read_text().split("| call | permission | role | of |\n")[1].split("\n\n")[0]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.splitlines()[1:]]


def strangers(log: str) -> set[str]:
    """The calls in a log of the tests' cloud that no row of the table names, a resource's name as `*`.

    Those of Compute Engine are deploy/vm's, whose machines have accounts of their own.
    """
    forms = [re.findall(r"`([A-Z]+ [^`]+)`", call) for call, *_ in calls()]
    known = [re.compile(re.escape(form).replace(r"\*", "[^?]*")) for row in forms for form in row]
    seen = set()
    for line in log.splitlines():
        method, host, path = re.match(r"(\w+) ([\w.-]+?)/([^?]*)", line).groups()
        service = {"www.googleapis.com": "storage"}.get(host, host.split(".")[0].removeprefix("us-central1-"))
        seen.add(f"{method} {service}/{path.removeprefix('storage/') if service == 'storage' else path}")
    return {call for call in seen if not any(form.fullmatch(call) for form in known) and " compute/" not in call}
