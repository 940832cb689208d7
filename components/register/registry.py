"""Interface of model registries: versions, aliases, and a history of all changes.

registry = open_registry("registry")                       # or "vertex://my-project/us-central1"
version = registry.register("mnist", "jobs/m/model", facts)
champion = registry.aliases("mnist").get("champion")
registry.promote("mnist", version, instead_of=champion)
registry.rollback("mnist", why="too many complaints")

This module has what all registries share. `directory` keeps one in a directory, `vertex` on Vertex
AI.
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

RECORD = "version.json"  # Written first into the folder of a version.
CHAMPION, PREVIOUS = "champion", "previous"
ADD, PROMOTE, ROLLBACK, DELETE = "add", "promote", "rollback", "delete"
_ANY = "any"


def check_name(name: str) -> None:
    """Checks the name of a model.

    Raises:
      UserError: If it has other characters than lower-case ASCII letters, digits, `-` and `_`, does
        not begin with a letter or a digit, or has more than 61.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,60}", name):
        raise UserError(
            f"model name {name!r}: lower-case letters, digits, - and _ only, at most 61"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Version:
    """One version of a model.

    Attributes:
      number: Number of the version, as a text.
      folder: Folder of its record.
      model_dir: Directory of its SavedModel.
      aliases: Aliases that point at it; on Vertex AI also those that others have made.
    """

    number: str
    folder: str
    model_dir: str
    aliases: Sequence[str]

    @functools.cached_property
    def facts(self) -> dict[str, Any]:
        """Facts that it was registered with, read once.

        They are empty if its files are gone, or if its folder has no record of this program.

        Raises:
          UserError: If the record cannot be read.
          ConnectionError: If a store does not answer.
        """
        return read_record(self.folder) or {}

    @property
    def has_files(self) -> bool:
        """True if its SavedModel exists, in a folder that this program made.

        Raises:
          UserError: If the folder cannot be read.
          ConnectionError: If a store does not answer.
        """
        return bool(self.facts) and _is_model(self.model_dir)

    def require_files(self, name: str) -> None:
        """Refuses a version without files.

        Args:
          name: Name of the model, for the message.

        Raises:
          UserError: If its files are gone, or its folder cannot be read.
          ConnectionError: If a store does not answer.
        """
        if not self.has_files:
            raise UserError(f"the files of version {self.number} of model {name!r} are gone")


class Registry(abc.ABC):
    """Versions of models, and the aliases that point at them.

    A version has facts, which never change, and a copy of a SavedModel. Others may delete these
    files; the version is then still listed, but never becomes the champion. Neither does a version
    whose server does not answer as recorded in its facts under `answered`. A version is registered
    completely or not at all. Its number is never used again, and concurrent writers get different
    numbers. Only what carries this program's record is changed or deleted; what others put beside
    it is skipped.

    Raises:
      UserError: From all methods, if a name is not allowed, if a version does not exist or cannot
        be used, or if the registry cannot be read or written.
      ConnectionError: From all methods, if Vertex AI or a store does not answer.
    """

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Returns the names of the models that have versions, in alphabetical order."""

    @abc.abstractmethod
    def versions(self, name: str) -> list[Version]:
        """Returns the versions of a model, oldest first.

        Versions that were deleted by this registry are left out. The list is empty for an unknown
        model.

        Raises:
          UserError: If the name is not allowed, or the registry cannot be read.
          ConnectionError: If Vertex AI does not answer.
        """

    @abc.abstractmethod
    def history(self, name: str) -> list[dict[str, Any]]:
        """Returns the events of a model, oldest first.

        Each has `time` (ISO 8601), `who`, `event`, `version` and `why`. Promotions and rollbacks
        also have `champion` and `previous`, the aliases after the event. There are none for an
        unknown model.

        Raises:
          UserError: If the name is not allowed, or the registry cannot be read.
          ConnectionError: If Vertex AI or a store does not answer.
        """

    @abc.abstractmethod
    def _insert(self, name: str, model_dir: str, facts: Mapping[str, Any]) -> str:
        """Adds a new version, and returns its number."""

    @abc.abstractmethod
    def _do(self, name: str, event: dict[str, Any]) -> None:
        """Records an event and carries it out.

        A deletion deletes the files of its version; any other event points the aliases at its
        `champion` and `previous`.
        """

    def _changing(
        self, name: str, *, create: bool = False
    ) -> contextlib.AbstractContextManager[object]:
        """Returns a context in which a decision is made and carried out.

        By default it does nothing. Where possible, a subclass keeps others from changing the model
        meanwhile, and first completes what a killed writer had begun. With `create`, it makes a
        place for a model that is new.
        """
        return contextlib.nullcontext()

    def register(self, name: str, model_dir: str, facts: Mapping[str, Any]) -> str:
        """Adds a SavedModel as a new version.

        Args:
          name: Name of the model.
          model_dir: Directory of the SavedModel, which is copied.
          facts: What is known of it; `registered`, the time, and `by`, the user, are added. If they
            name a `run` that has a version already, nothing is added to the registry.

        Returns:
          The number of the new version, or of the version that the run has.

        Raises:
          UserError: If the name is not allowed, there is no SavedModel, or the registry cannot take
            it.
          ConnectionError: If Vertex AI or a store does not answer.
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
        """Makes a version the champion, and the present champion the previous one.

        Before that, if the version's facts have requests, a server of it is started and has to
        answer as they say, even if it is the champion already. Without requests, or if `instead_of`
        rules the change out already, nothing is tried.

        Args:
          name: Name of the model.
          version: Number or alias of the version.
          why: Reason, for the history.
          instead_of: Champion that the version was compared with; None if there was none. If
            another one is the champion by now, nothing changes. By default any champion is
            replaced.
          event: Name of the event in the history.

        Returns:
          Whether the alias was moved. It is not if the version is the champion already, or if the
          champion is not the one of `instead_of`.

        Raises:
          UserError: If there is no such version, its files are gone, or its server does not answer
            as recorded. `instead_of` is considered before the latter two.
          ConnectionError: If Vertex AI or a store does not answer.
        """
        versions = self.versions(name)
        if instead_of in (_ANY, _aliases(versions).get(CHAMPION)):
            # This takes seconds, so it is done before others have to wait for the lock.
            candidate = _find(name, version, versions)
            candidate.require_files(name)
            answered = candidate.facts.get("answered") or {}
            if "instances" in answered:  # Earlier code kept no requests that can be sent.
                answers.check(candidate.model_dir, answered)
        with self._changing(name):
            versions = self.versions(name)
            version = _find(name, version, versions).number
            champion = _aliases(versions).get(CHAMPION)
            if champion == version or instead_of not in (_ANY, champion):
                return False
            self._do(name, _event(event, version, why, champion=version, previous=champion))
            return True

    def rollback(self, name: str, why: str = "") -> str:
        """Swaps the champion and the previous champion. Returns the number of the new champion.

        Raises:
          UserError: If no version but the champion has the alias `previous`, its files are gone, or
            its server does not answer as recorded.
          ConnectionError: If Vertex AI or a store does not answer.
        """
        while True:
            aliases = self.aliases(name)
            version = aliases.get(PREVIOUS)
            if version in (None, aliases.get(CHAMPION)):
                raise UserError(f"model {name!r} in {self} has no previous champion to go back to")
            # Another writer may have moved the aliases since they were read.
            if self.promote(name, version, why, instead_of=aliases.get(CHAMPION), event=ROLLBACK):
                return version

    def delete(self, name: str, version: str, why: str = "") -> None:
        """Deletes a version with its files.

        Args:
          name: Name of the model.
          version: Number of the version.
          why: Reason, for the history.

        Raises:
          UserError: If there is no such model or version, or if an alias points at it.
          ConnectionError: If Vertex AI or a store does not answer.
        """
        with self._changing(name):
            if aliases := self.find(name, version).aliases:
                raise UserError(
                    f"version {version} of model {name!r} is {' and '.join(aliases)}; move that "
                    "away first"
                )
            self._do(name, _event(DELETE, version, why))

    def find(self, name: str, version: str) -> Version:
        """Returns the version with a number or an alias.

        Raises:
          UserError: If there is no such model or version.
          ConnectionError: If Vertex AI does not answer.
        """
        versions = self.versions(name)
        if not versions:
            raise unknown("model", name, self.names())
        return _find(name, version, versions)

    def aliases(self, name: str) -> dict[str, str]:
        """Returns version numbers by alias: `champion`, `previous`, and aliases made by others.

        There are none for an unknown model.

        Raises:
          UserError: If the name is not allowed, or the registry cannot be read.
          ConnectionError: If Vertex AI does not answer.
        """
        return _aliases(self.versions(name))

    def version_of(self, name: str, run: str) -> str | None:
        """Returns the number of the newest version that a run registered, or None.

        A version whose files are gone does not count, since nothing says then which run it is of.

        Raises:
          UserError: If the name is not allowed, or the registry cannot be read.
          ConnectionError: If Vertex AI or a store does not answer.
        """
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
    """Returns the current time in UTC as ISO 8601, to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def who() -> str:
    """Returns `USER@HOST` for the history; USER is `?` if it is not known."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # The user of a container may have no name.
        user = "?"
    return f"{user}@{socket.gethostname()}"


def added(version: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the event of the history for a new version, made from the version's facts.

    Its `why` is the reasons of the evaluation's decision, and empty without a decision.
    """
    why = "; ".join(facts.get("decision", {}).get("reasons", ()))
    return {
        "time": facts["registered"],
        "who": facts["by"],
        "event": ADD,
        "version": version,
        "why": why,
    }


def marked(folder: epath.PathLike) -> dict[str, str]:
    """Returns the entries of a record that mark a folder as made by this program.

    They include the last two names of the folder's path, so that a copy of the folder elsewhere is
    not taken for one of this program.
    """
    return dict([MANAGED_BY]) | {"folder": "/".join(os.fspath(folder).rstrip("/").split("/")[-2:])}


def write_record(
    folder: epath.PathLike, record: Mapping[str, Any], place: epath.PathLike | None = None
) -> None:
    """Writes the record of a folder, `version.json`, in place of one that is there.

    Args:
      folder: The folder that the record is for.
      record: Entries beside those of `marked`, which win over equal keys.
      place: Folder to write into, if it will later be renamed to `folder`.

    Raises:
      UserError: If a store refuses the request.
      OSError: If the file cannot be written, or a store does not answer.
    """
    write_text(
        epath.Path(place or folder) / RECORD,
        json.dumps({**record, **marked(folder)}, indent=1) + "\n",
    )


def read_record(folder: epath.PathLike) -> dict[str, Any] | None:
    """Returns the record of a folder, the content of its `version.json`.

    Returns None if there is no such folder. It also does, with a note on standard error, if the
    folder has no record that this program made for it, or one that may not be read.

    Raises:
      UserError: If the folder cannot be read for another reason.
      ConnectionError: If a store does not answer.
    """
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
    """Prints a note that a thing was not made by this program and is skipped; once for each thing.

    The note goes to standard error.
    """
    print(f"note: {thing} was not made by this registry and is skipped", file=sys.stderr)


def _is_model(directory: str) -> bool:
    with reading(directory, "give one that can be reached"), store_errors():
        return (epath.Path(directory) / "saved_model.pb").exists()
