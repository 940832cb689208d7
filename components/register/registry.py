"""The interface of a registry of models: versions, aliases, and a history of who moved them when and why.

registry = open_registry("registry")                       # or "vertex://my-project/us-central1"
version = registry.register("mnist", "jobs/m/model", facts)
champion, _ = registry.effective_champion("mnist")
registry.promote("mnist", version, instead_of=champion)
registry.rollback("mnist", why="too many complaints")

Here is all that registries share; `directory` keeps one in a directory, `vertex` on Vertex AI.
"""

import abc
import contextlib
import datetime
import functools
import getpass
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from etils import epath

from common.errors import UserError, reading, store_errors, unknown
from common.google_cloud import MANAGED_BY
from common.storage.files import read_json, write_text
from components.register import answers

RECORD = "version.json"  # in the folder of each version: it is written first and deleted last
CHAMPION, PREVIOUS = "champion", "previous"
ADD, PROMOTE, ROLLBACK, DELETE = "add", "promote", "rollback", "delete"
# What a version answers to: whoever uses a name counts on these.
_SCHEMA = ("task", "features", "class_names", "targets")
Facts = Mapping[str, Any]  # what is known of a version
Card = Callable[[Facts], str]  # what a person reads of them
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def check_name(name: str) -> None:
    """Raises a UserError for what is no name of a model."""
    if not NAME.fullmatch(name):
        raise UserError(f"model name {name!r}: lower-case letters, digits, - and _ only, at most 63")


class Registry(abc.ABC):
    """Versions of models and the aliases that point at them.

    A version has facts, which never change, and a directory with a SavedModel, which others may delete: a version whose files
    are gone is still listed, and never becomes the champion; nor does one that does not answer as its facts say that it has
    `answered`. A version is there whole or not at all, its number is never given to another one, and writers at the same time
    get different ones. Only what carries this program's record is changed or deleted; what others put beside it is skipped.

    Raises:
      UserError: Of all methods, for a name that cannot be, for a version that is not there or cannot be used, and where the
        registry cannot be read or written.
    """

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Returns the names of the models, in order."""

    @abc.abstractmethod
    def versions(self, name: str) -> list[str]:
        """Returns the versions of a model that nobody has deleted by this registry, oldest first."""

    @abc.abstractmethod
    def aliases(self, name: str) -> dict[str, str]:
        """Returns the version by alias: `champion`, `previous`, and those of others."""

    @abc.abstractmethod
    def show(self, name: str, version: str) -> dict[str, Any]:
        """Returns the facts that a version was registered with; none once its files are gone."""

    @abc.abstractmethod
    def model_dir(self, name: str, version: str) -> str:
        """Returns where the SavedModel of a version lies."""

    @abc.abstractmethod
    def history(self, name: str) -> list[dict[str, Any]]:
        """Returns the events of a model, oldest first: `time` (ISO 8601), `who`, `event`, `version`, `why`.

        Those of promotions and rollbacks also have `champion` and `previous`, as they were from then on.
        """

    @abc.abstractmethod
    def _insert(self, name: str, model_dir: str, facts: Facts, card: Card | None) -> str:
        """Makes a new version with a card of its facts, if there is to be one. Returns it."""

    @abc.abstractmethod
    def _do(self, name: str, event: dict[str, Any]) -> None:
        """Keeps an event and does what it says: deletes its version, or points the aliases at `champion` and `previous`."""

    def _changing(self, name: str, *, create: bool = False) -> contextlib.AbstractContextManager[object]:
        """Returns what is entered around a decision and what is done by it.

        It keeps others from changing the model meanwhile where it can, and finishes what a writer had begun who was killed.
        A model that is new is there only if it is to be created.
        """
        return contextlib.nullcontext()

    def register(
        self, name: str, model_dir: str, facts: Facts, *, new_schema: bool = False, card: Card | None = None
    ) -> str:
        """Adds a SavedModel as a new version.

        Args:
          name: Of the model.
          model_dir: Its files, which are copied.
          facts: What is known of it. A `run` that registers again gets the version it has.
          new_schema: Whether it may take or answer other than the newest version of this name, which is refused else.
          card: Makes a text for people of the facts.

        Returns:
          The version.
        """
        check_name(name)
        if not _is_model(model_dir):
            raise UserError(f"{model_dir}: no SavedModel here")
        with self._changing(name, create=True):
            if facts.get("run") and (own := self.version_of(name, facts["run"])):
                return own
            if not new_schema:
                self._check_schema(name, facts)
            return self._insert(name, model_dir, {"registered": now(), "by": self._who(), **facts}, card)

    def promote(self, name: str, version: str, *, instead_of: str | None, why: str = "") -> bool:
        """Makes a version the champion if the one to beat is still `instead_of`. Returns whether it did.

        A model was compared with one champion; if another was promoted since, nothing is known.
        """
        # Else it is decided, and not worth the seconds of a process.
        if self.effective_champion(name, exclude=version)[0] == instead_of:
            self._check_answers(name, version)
        with self._changing(name):
            champion, _ = self.effective_champion(name, exclude=version)
            self._check_usable(name, version)
            if champion == instead_of:
                self._do(name, self._event(PROMOTE, version, why, champion=version, previous=champion))
            return champion == instead_of

    def rollback(self, name: str, to: str | None = None, why: str = "", *, event: str = ROLLBACK) -> str:
        """Makes the previous champion, or version `to`, the champion, and the champion the previous one. Returns its version.

        Nothing is compared; the history calls it by the event.
        """
        if (version := to or self.aliases(name).get(PREVIOUS)) is None:
            raise UserError(f"model {name!r} in {self} has no previous champion to go back to")
        self._check_answers(name, version)
        with self._changing(name):
            champion = self.aliases(name).get(CHAMPION)
            self._check_usable(name, version)
            if version == champion:
                raise UserError(f"version {version} of model {name!r} is the champion already")
            self._do(name, self._event(event, version, why, champion=version, previous=champion))
            return version

    def delete(self, name: str, version: str, why: str = "") -> None:
        """Deletes a version that no alias points at."""
        with self._changing(name):
            if aliases := self.aliases_of(name, self.find(name, version)):
                raise UserError(f"version {version} of model {name!r} is {' and '.join(aliases)}; move that away first")
            self._do(name, self._event(DELETE, version, why))

    def find(self, name: str, version: str) -> str:
        """Returns the version that is meant by a number or an alias."""
        version = self.aliases(name).get(version, version)
        if version not in (versions := self.versions(name)):
            if not versions:
                raise unknown("model", name, self.names())
            raise unknown(f"version of model {name!r}", version, versions)
        return version

    def aliases_of(self, name: str, version: str) -> list[str]:
        """Returns the aliases that point at a version."""
        return [alias for alias, target in self.aliases(name).items() if target == version]

    def has_files(self, name: str, version: str) -> bool:
        """Returns whether a version's SavedModel exists, in a folder that this program made."""
        return bool(self.show(name, version)) and _is_model(self.model_dir(name, version))

    def version_of(self, name: str, run: str) -> str | None:
        """Returns the newest version that a run registered, or None."""
        return next((v for v in reversed(self.versions(name)) if self.show(name, v).get("run") == run), None)

    def effective_champion(self, name: str, *, exclude: str = "") -> tuple[str | None, str]:
        """Returns the version that a model has to beat, and in words what was passed over, if anything.

        It is the champion; if its files are gone, the one before it, or else the newest that is there, but for the version to
        exclude. None without champion.
        """
        aliases, gone = self.aliases(name), []
        if CHAMPION not in aliases:
            return None, ""
        named = {aliases[CHAMPION]: "the champion", aliases.get(PREVIOUS, ""): "the previous champion"}
        others = [version for version in reversed(self.versions(name)) if version != exclude]
        for version in filter(None, dict.fromkeys([*named, *others])):
            if self.has_files(name, version):
                return version, "; ".join([*gone, f"version {version} stands in"] if gone else [])
            if version in named:
                gone.append(f"the files of version {version}, {named[version]}, are gone, and it is passed over")
        return None, "; ".join(gone)

    def _check_usable(self, name: str, version: str) -> None:
        if not self.has_files(name, self.find(name, version)):
            raise UserError(f"the files of version {version} of model {name!r} are gone")

    def _check_answers(self, name: str, version: str) -> None:
        """Stays outside of `_changing`: it takes seconds, in which others need not wait."""
        self._check_usable(name, version)
        if answered := self.show(name, version).get("answered"):
            answers.check(self.model_dir(name, version), answered)

    def _check_schema(self, name: str, facts: Facts) -> None:
        newest = next((shown for version in reversed(self.versions(name)) if (shown := self.show(name, version))), {})
        if other := [key for key in _SCHEMA if key in newest and newest[key] != facts.get(key)]:
            differences = "; ".join(
                f"{key} {str(facts.get(key))[:120]} and not {str(newest[key])[:120]}" for key in other
            )
            raise UserError(
                f"the versions of model {name!r} are for other data: this one has {differences}; give it another name, or "
                "--new-schema if whoever uses this one knows"
            )

    def _event(self, event: str, version: str, why: str, **aliases: str | None) -> dict[str, Any]:
        return {"time": now(), "who": self._who(), "event": event, "version": version, "why": why, **aliases}

    def _who(self) -> str:
        """Returns the account that acts, as far as it can be known."""
        try:
            user = getpass.getuser()
        except (OSError, KeyError):  # a container's user without a name
            user = "?"
        return f"{user}@{socket.gethostname()}"


def marked(folder: epath.PathLike) -> dict[str, str]:
    """Returns what a record has that tells that this program made the folder; a copy of it elsewhere is not ours."""
    return dict([MANAGED_BY]) | {"folder": "/".join(os.fspath(folder).rstrip("/").split("/")[-2:])}


def is_record_of(folder: epath.PathLike, record: Any) -> bool:
    """Returns whether `record`, parsed from a `version.json`, says that this program made the folder that it lies in."""
    return isinstance(record, dict) and marked(folder).items() <= record.items()


def write_record(folder: epath.PathLike, record: Mapping[str, Any], place: epath.PathLike | None = None) -> None:
    """Writes the record of a folder of ours, or into the `place` that will be renamed to it."""
    write_text(epath.Path(place or folder) / RECORD, json.dumps({**record, **marked(folder)}, indent=1) + "\n")


def read_record(folder: epath.PathLike) -> dict[str, Any] | None:
    """Reads the record of a folder; None if there is no such folder, or with a note if this program did not make it."""
    path = epath.Path(folder)
    with reading(path / RECORD):
        try:
            record = read_json(path / RECORD)
        except (ValueError, PermissionError):
            record = None
        if is_record_of(folder, record):
            return record
        if path.is_dir():
            note_foreign(folder)
    return None


@functools.cache
def note(text: str) -> None:
    """Prints a note once."""
    print(f"note: {text}", file=sys.stderr)


def note_foreign(thing: object) -> None:
    """Says once of something that is not ours that it is skipped."""
    note(f"{thing} was not made by this registry and is skipped")


def now() -> str:
    """Returns the time as ISO 8601, in UTC, to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def added(version: str, facts: Facts) -> dict[str, Any]:
    """Returns the event of the history that a version's facts tell of."""
    about = {"time": facts.get("registered", ""), "who": facts.get("by", "")}
    return {**about, "event": ADD, "version": version, "why": because(facts.get("run"), facts.get("decision", {}))}


def because(run: str | None, decision: Mapping[str, Any]) -> str:
    """Returns the run, if there was one, and the reasons of the decision, as the history has them."""
    return ": ".join(filter(None, (f"run {run}" if run else "", "; ".join(decision.get("reasons", ())))))


def _is_model(directory: str) -> bool:
    with reading(directory, "give one that can be reached"), store_errors():
        return (epath.Path(directory) / "saved_model.pb").exists()
