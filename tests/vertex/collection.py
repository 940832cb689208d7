"""Resources of one kind that are created, got, listed and cancelled."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import proto
from google.api_core import exceptions

if TYPE_CHECKING:
    from vertex.server import Server

_PAGE = 2  # small, so that every client is seen to ask for the next page
_TERM = re.compile(r'(?P<field>[\w.]+)="(?P<value>[^"]*)"')


class Collection:
    """All resources of a kind in a server; `items` has them by name, and a test may change them."""

    def __init__(
        self,
        server: Server,
        noun: str,
        kind: type[proto.Message],
        listing: type[proto.Message],
        *,
        created: int,
        cancelled: int,
    ) -> None:
        """Adds the routes of `noun`, such as `customJobs`; a new one has the state `created`."""
        self.items: dict[str, proto.Message] = {}
        self._noun, self._kind, self._listing = noun, kind, listing
        self._created, self._cancelled = created, cancelled
        self._ids = itertools.count(1)
        server.route("POST", f"{{parent}}/{noun}", self.create)
        server.route("GET", f"{{parent}}/{noun}", self.list)
        server.route("GET", f"{{parent}}/{noun}/{{id}}", self.get)
        server.route("POST", f"{{parent}}/{noun}/{{id}}:cancel", self.cancel)

    def create(self, *, parent: str, query: Mapping[str, str], body: str) -> proto.Message:
        """Adds a resource; clients may give its id as a query parameter, `pipelineJobId`."""
        item = self._kind.from_json(body, ignore_unknown_fields=False)
        chosen = query.get(f"{self._noun.removesuffix('s')}Id")
        item.name = f"{parent}/{self._noun}/{chosen or next(self._ids)}"
        if item.name in self.items:
            raise exceptions.AlreadyExists(item.name)
        item.state, item.create_time = self._created, now()
        self.items[item.name] = item
        return item

    def list(self, *, parent: str, query: Mapping[str, str], body: str) -> proto.Message:
        return page(self._listing, re.sub("([A-Z])", r"_\1", self._noun).lower(), self.items.values(), query)

    def get(self, *, parent: str, id: str, query: Mapping[str, str], body: str) -> proto.Message:
        name = f"{parent}/{self._noun}/{id}"
        if name not in self.items:
            raise exceptions.NotFound(name)
        return self.items[name]

    def cancel(self, *, parent: str, id: str, query: Mapping[str, str], body: str) -> None:
        item = self.get(parent=parent, id=id, query=query, body=body)
        if re.search("SUCCEEDED|FAILED|CANCELLED|EXPIRED", item.state.name):
            raise exceptions.FailedPrecondition(f"{item.name} is {item.state.name}")
        item.state = self._cancelled


def page(
    listing: type[proto.Message], field: str, items: Iterable[proto.Message], query: Mapping[str, str]
) -> proto.Message:
    """A page of the items that the filter in the query lets through."""
    found = [item for item in items if _matches(item, query.get("filter", ""))]
    start = int(query.get("pageToken") or 0)
    end = start + _PAGE
    return listing({field: found[start:end], "next_page_token": str(end) if end < len(found) else ""})


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _matches(item: proto.Message, terms: str) -> bool:
    """Whether a filter lets an item through; of the filter language only `field="value" AND ...` is understood."""
    for term in filter(None, terms.split(" AND ")):
        if not (match := _TERM.fullmatch(term)):
            raise exceptions.InvalidArgument(f"filter {term!r}")
        value: Any = item
        for part in match["field"].split("."):
            value = value.get(part) if isinstance(value, Mapping) else getattr(value, part)
        if value != match["value"]:
            return False
    return True
