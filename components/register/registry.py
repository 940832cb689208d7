"""The interface of a registry of models: versions, aliases, and a history of who moved them when and why.

registry = open_registry("registry")                       # or "vertex://my-project/us-central1"
version = registry.register("mnist", "jobs/m/model", facts)
champion = registry.aliases("mnist").get("champion")
registry.promote("mnist", version, instead_of=champion)
registry.rollback("mnist", why="too many complaints")

Here is all that registries share; `directory` keeps one in a directory, `vertex` on Vertex AI.
"""

import abc
import contextlib
import dataclasses
import datetime
import functools
import getpass
import json
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath

from common.errors import UserError, reading, store_errors, unknown
from common.google_cloud import MANAGED_BY
from common.storage.files import read_json, write_text
from components.register import answers

RECORD = "version.json"  # in the folder of each version: it is written first and deleted last
CHAMPION, PREVIOUS = "champion", "previous"
ADD, PROMOTE, ROLLBACK, DELETE = "add", "promote", "rollback", "delete"
_ANY = "any"


def check_name(name: str) -> None:
    """Raises a UserError for what is no name of a model."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,60}", name):
        raise UserError(
            f"model name {name!r}: lower-case letters, digits, - and _ only, at most 61"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Version:
    """A version of a model.

    Attributes:
      number: Name of the version.
      folder: Where its record lies.
      model_dir: Where its SavedModel lies.
      aliases: Aliases that point at it.
    """

    number: str
    folder: str
    model_dir: str
    aliases: Sequence[str]

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """The facts that it was registered with; empty once its files are gone."""
        return read_record(self.folder) or {}

    @property
    def has_files(self) -> bool:
        """Whether its SavedModel exists, in a folder that this program made."""
        return bool(self.facts) and _is_model(self.model_dir)


class Registry(abc.ABC):
    """Versions of models and the aliases that point at them.

    A version has facts, which never change, and a directory with a SavedModel, which others may
    delete: a version whose files are gone is still listed, and never becomes the champion; nor does
    one that does not answer as its facts say that it has `answered`. A version is there whole or
    not at all, its number is never given to another one, and writers at the same time get different
    ones. Only what carries this program's record is changed or deleted; what others put beside it
    is skipped.

    Raises:
      UserError: Of all methods, for a name that cannot be, for a version that is not there or
        cannot be used, and where the registry cannot be read or written.
    """

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Returns the names of the models, in order."""

    @abc.abstractmethod
    def versions(self, name: str) -> list[Version]:
        """Returns the versions of a model that nobody has deleted by this registry, oldest first."""

    @abc.abstractmethod
    def history(self, name: str) -> list[dict[str, Any]]:
        """Returns the events of a model, oldest first: `time` (ISO 8601), `who`, `event`, `version`, `why`.

        Those of promotions and rollbacks also have `champion` and `previous`, as they were from
        then on.
        """

    @abc.abstractmethod
    def _insert(self, name: str, model_dir: str, facts: Mapping[str, Any]) -> str:
        """Makes a new version. Returns its number."""

    @abc.abstractmethod
    def _do(self, name: str, event: dict[str, Any]) -> None:
        """Keeps an event and does what it says: deletes its version, or points the aliases at `champion` and `previous`."""

    def _changing(
        self, name: str, *, create: bool = False
    ) -> contextlib.AbstractContextManager[object]:
        """Returns what is entered around a decision and what is done by it.

        It keeps others from changing the model meanwhile where it can, and finishes what a writer
        had begun who was killed. A model that is new is there only if it is to be created.
        """
        return contextlib.nullcontext()

    def register(self, name: str, model_dir: str, facts: Mapping[str, Any]) -> str:
        """Adds a SavedModel as a new version.

        Args:
          name: Name of the model.
          model_dir: Its files, which are copied.
          facts: What is known of it. A `run` that registers again gets the version it has.

        Returns:
          The version.
        """
        check_name(name)
        if not _is_model(model_dir):
            raise UserError(f"{model_dir}: no SavedModel here")
        with self._changing(name, create=True):
            if facts.get("run") and (own := self.version_of(name, facts["run"])):
                return own
            return self._insert(name, model_dir, {"registered": now(), "by": who(), **facts})

    def promote(
        self,
        name: str,
        version: str,
        why: str = "",
        *,
        instead_of: str | None = _ANY,
        event: str = PROMOTE,
    ) -> bool:
        """Moves the alias of the champion to a version, and that of the previous champion to the present one.

        Args:
          name: Name of the model.
          version: Its number.
          why: For the history.
          instead_of: The champion that it was compared with, if it was: if another was promoted
            since, nothing is known.
          event: What the history calls it.

        Returns:
          Whether it did: not if it is the champion already, or if another one is than `instead_of`.
        """
        versions = self.versions(name)
        if instead_of in (_ANY, _aliases(versions).get(CHAMPION)):
            # Not while others wait: it takes seconds.
            candidate = _find(name, version, versions)
            if not candidate.has_files:
                raise UserError(f"the files of version {version} of model {name!r} are gone")
            answered = candidate.facts.get("answered") or {}
            if "instances" in answered:  # What earlier code kept cannot be sent.
                answers.check(candidate.model_dir, answered)
        with self._changing(name):
            versions = self.versions(name)
            _find(name, version, versions)
            champion = _aliases(versions).get(CHAMPION)
            if champion == version or instead_of not in (_ANY, champion):
                return False
            self._do(name, _event(event, version, why, champion=version, previous=champion))
            return True

    def rollback(self, name: str, why: str = "") -> str:
        """Makes the previous champion the champion, and the champion the previous one. Returns its version."""
        while True:
            aliases = self.aliases(name)
            version = aliases.get(PREVIOUS)
            if version is None:
                raise UserError(f"model {name!r} in {self} has no previous champion to go back to")
            # Another writer may have moved the aliases since they were read.
            if self.promote(name, version, why, instead_of=aliases.get(CHAMPION), event=ROLLBACK):
                return version

    def delete(self, name: str, version: str, why: str = "") -> None:
        """Deletes a version that no alias points at."""
        with self._changing(name):
            if aliases := self.find(name, version).aliases:
                raise UserError(
                    f"version {version} of model {name!r} is {' and '.join(aliases)}; move that "
                    "away first"
                )
            self._do(name, _event(DELETE, version, why))

    def find(self, name: str, version: str) -> Version:
        """Returns the version that is meant by a number or an alias."""
        versions = self.versions(name)
        if not versions:
            raise unknown("model", name, self.names())
        return _find(name, version, versions)

    def aliases(self, name: str) -> dict[str, str]:
        """Returns the version by alias: `champion`, `previous`, and those of others."""
        return _aliases(self.versions(name))

    def version_of(self, name: str, run: str) -> str | None:
        """Returns the newest version that a run registered, or None."""
        versions = reversed(self.versions(name))
        return next(
            (version.number for version in versions if version.facts.get("run") == run), None
        )


def _find(name: str, version: str, versions: Sequence[Version]) -> Version:
    for each in versions:
        if version in (each.number, *each.aliases):
            return each
    raise unknown(f"version of model {name!r}", version, [each.number for each in versions])


def _aliases(versions: Sequence[Version]) -> dict[str, str]:
    return {alias: version.number for version in versions for alias in version.aliases}


def _event(event: str, version: str, why: str, **aliases: str | None) -> dict[str, Any]:
    return {"time": now(), "who": who(), "event": event, "version": version, "why": why, **aliases}


def now() -> str:
    """Returns the time as ISO 8601, in UTC, to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def who() -> str:
    """Returns the account that acts, as far as it can be known."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "?"
    return f"{user}@{socket.gethostname()}"


def added(version: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the event of the history that a version's facts tell of."""
    why = "; ".join(facts.get("decision", {}).get("reasons", ()))
    return {
        "time": facts["registered"],
        "who": facts["by"],
        "event": ADD,
        "version": version,
        "why": why,
    }


def marked(folder: epath.PathLike) -> dict[str, str]:
    """Returns what a record has that tells that this program made the folder; a copy of it elsewhere is not ours."""
    return dict([MANAGED_BY]) | {"folder": "/".join(os.fspath(folder).rstrip("/").split("/")[-2:])}


def write_record(
    folder: epath.PathLike, record: Mapping[str, Any], place: epath.PathLike | None = None
) -> None:
    """Writes the record of a folder of ours, or into the `place` that will be renamed to it."""
    write_text(
        epath.Path(place or folder) / RECORD,
        json.dumps({**record, **marked(folder)}, indent=1) + "\n",
    )


def read_record(folder: epath.PathLike) -> dict[str, Any] | None:
    """Reads the record of a folder; None if there is no such folder, and, with a note, if this program did not make it."""
    path = epath.Path(folder)
    with reading(path / RECORD):
        try:
            record = read_json(path / RECORD)
        except (ValueError, PermissionError):
            record = None
        if isinstance(record, dict) and marked(folder).items() <= record.items():
            return record
        if path.is_dir():
            note_foreign(folder)
    return None


@functools.cache
def note_foreign(thing: object) -> None:
    """Says once of something that is not ours that it is skipped."""
    print(f"note: {thing} was not made by this registry and is skipped", file=sys.stderr)


def _is_model(directory: str) -> bool:
    with reading(directory, "give one that can be reached"), store_errors():
        return (epath.Path(directory) / "saved_model.pb").exists()
