"""Resources of one kind: made, got and listed, and those that are jobs also cancelled."""

import datetime
import itertools
import re
from collections.abc import Mapping

from google.api_core import exceptions
from google.cloud import aiplatform_v1 as v1
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tests.cloud.rules import check

_OPERATIONS = itertools.count(1)
_LIVE = re.compile("_STATE_(?!SUCCEEDED|PARTIALLY_SUCCEEDED|FAILED|CANCELLED|EXPIRED)")
_PAGE = 2  # small, so that every client is seen to ask for the next page


class Collection:
    """All resources of a kind; `items` has them by name, and a test may change them."""

    def __init__(self, route, kind, created=None):
        """Adds the routes of a kind, `customJobs` for `CustomJob`, by `Vertex.route`.

        A new one has the state `created`, and can be cancelled; without it, the kind is no job.
        """
        self.items = {}
        self._kind, self._created, self._ids = kind, created, itertools.count(1)
        self._listing = getattr(v1, f"List{kind.__name__}sResponse")
        self._noun = f"{kind.__name__[0].lower()}{kind.__name__[1:]}s"
        self._path = f"{{parent}}/{self._noun}"
        route("POST", self._path, self.create)
        route("GET", self._path, self.listed)
        route("GET", f"{self._path}/{{id}}", self.get)
        route("DELETE", f"{self._path}/{{id}}", self.delete)
        if created:
            route("POST", f"{self._path}/{{id}}:cancel", self.cancel)

    def create(self, request):
        """Adds a resource; clients may give its id as a query parameter, `pipelineJobId`."""
        chosen = request.query.get(f"{self._noun.removesuffix('s')}Id")
        name = f"{request.path}/{chosen or next(self._ids)}"
        item = parsed(self._kind, request, name=name)
        if item.name in self.items:
            raise exceptions.AlreadyExists(item.name)
        item.create_time = now()
        if self._created:
            item.state = self._created
        self.items[item.name] = item
        return item

    def listed(self, request):
        field = re.sub("([A-Z])", r"_\1", self._noun).lower()
        return page(self._listing, field, self.items.values(), request)

    def get(self, request):
        name = resource(request)
        if name not in self.items:
            raise exceptions.NotFound(name)
        return self.items[name]

    def delete(self, request):
        item = self.get(request)
        if self._created and _LIVE.search(item.state.name):
            raise exceptions.FailedPrecondition(f"{item.name} is {item.state.name}")
        del self.items[item.name]
        return operation(item.name, empty_pb2.Empty())

    def cancel(self, request):
        item = self.get(request)
        if not _LIVE.search(item.state.name):
            raise exceptions.FailedPrecondition(f"{item.name} is {item.state.name}")
        item.state = re.sub("_STATE_.*", "_STATE_CANCELLED", item.state.name)
        return empty_pb2.Empty()


def resource(request):
    """Returns the name of the resource, or of all of a kind, that a request is about."""
    return request.path.partition(":")[0]


def parsed(kind, request, **of_path):
    """Returns a request's body with fields that its path has; refuses what breaks a rule."""
    message = kind.from_json(request.body, ignore_unknown_fields=False)
    for name, value in of_path.items():
        setattr(message, name, value)
    check(message, request.path)
    return message


def require(condition, problem):
    """Refuses an argument for which a condition of the API does not hold."""
    if not condition:
        raise exceptions.InvalidArgument(problem)


def page(listing, field, items, request):
    """A page of the items that the filter in the query lets through."""
    matching = [item for item in items if _matches(item, request.query.get("filter", ""))]
    start = int(request.query.get("pageToken") or 0)
    end = start + _PAGE
    token = str(end) if end < len(matching) else ""
    return listing({field: matching[start:end], "next_page_token": token})


def operation(resource, result):
    """Returns an operation on a resource, for `Vertex` to end with a message of the API."""
    operation = operations_pb2.Operation(name=f"{resource}/operations/{next(_OPERATIONS)}")
    operation.response.Pack(getattr(result, "_pb", result))
    return operation


def now():
    return datetime.datetime.now(datetime.UTC)


def _matches(item, terms):
    """Returns whether a filter lets an item through; it is `field="value" AND ...`."""
    for term in filter(None, terms.split(" AND ")):
        match = re.fullmatch(r'([\w.]+)="([^"]*)"', term)
        require(match, f"filter {term!r}")
        value = item
        for part in match[1].split("."):
            value = value.get(part) if isinstance(value, Mapping) else getattr(value, part)
        if value != match[2]:
            return False
    return True
