"""Compute Engine's managed groups of instances, to make and to delete; their machines are what a test starts.

After the reference of `instanceGroupManagers` (insert, delete).
"""

import json
import re

from google.api_core import exceptions

from tests.cloud.front import Answer, Request

_FIELDS = {"name", "description", "baseInstanceName", "instanceTemplate", "targetSize", "params"}


class Groups:
    """The groups that there are."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def answer(self, request: Request) -> Answer:
        """The answer to a request."""
        pattern = r"/compute/v1/projects/[^/]+/zones/[^/]+/instanceGroupManagers(?:/([^/]+))?"
        if not (match := re.fullmatch(pattern, request.path)):
            raise exceptions.NotFound(request.path)
        if not re.fullmatch("Bearer .+", request.headers.get("Authorization", "")):
            raise exceptions.Unauthorized("no token")
        if request.method == "POST":
            if unknown := (body := json.loads(request.body)).keys() - _FIELDS:
                raise exceptions.BadRequest(f"unknown fields {unknown}")
            if body["name"] in self._names:
                raise exceptions.Conflict(body["name"])
            self._names.add(body["name"])
        elif request.method == "DELETE" and match[1] in self._names:
            self._names.remove(match[1])
        else:
            raise exceptions.NotFound(request.path)
        return Answer(200, {"kind": "compute#operation", "status": "RUNNING"})
