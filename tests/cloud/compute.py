"""Compute Engine's managed groups of instances; their machines are what a test starts.

After the reference of `instanceGroupManagers` (insert, delete).
"""

import json

from google.api_core import exceptions

from tests.cloud.front import Answer

_FIELDS = {"name", "description", "baseInstanceName", "instanceTemplate", "targetSize", "params"}


class Groups:
    """The groups that there are."""

    def __init__(self):
        self._names = set()

    def answer(self, request):
        """The answer to a request to make or to delete a group."""
        match request.method, request.path.split("/")[7:]:
            case "POST", ["instanceGroupManagers"]:
                if unknown := (body := json.loads(request.body)).keys() - _FIELDS:
                    raise exceptions.BadRequest(f"unknown fields {unknown}")
                if body["name"] in self._names:
                    raise exceptions.Conflict(body["name"])
                self._names.add(body["name"])
            case "DELETE", ["instanceGroupManagers", name] if name in self._names:
                self._names.remove(name)
            case _:
                raise exceptions.NotFound(request.path)
        return Answer(200, {"kind": "compute#operation", "status": "RUNNING"})
