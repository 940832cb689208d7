"""The interface of a registry of models: versions, aliases, and a history of who moved them when and why.

store = open_registry("registry")                       # or "vertex://my-project/us-central1"
version = store.add("mnist", "jobs/m/model", facts)
champion, _ = store.standing("mnist")
store.promote("mnist", version, instead_of=champion)
store.rollback("mnist", why="too many complaints")

Here is all that both kinds of registry share; `registry` keeps it in a directory, `vertex` on Vertex AI.
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
from collections.abc import Callable, Iterator, Mapping
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


class Store(abc.ABC):
    """Versions of models and the aliases that point at them.

    A version has facts, which never change, and a directory with a SavedModel, which others may delete: a version whose files
    are gone is told, and never becomes the champion; nor does one that does not answer as its facts say that it has `answered`.
    All methods raise UserError for these, for a name or version that cannot be, for a version that is not there, and where the
    registry cannot be read or written.
    """

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Names of the models, in order."""

    @abc.abstractmethod
    def versions(self, name: str) -> list[str]:
        """Versions of a model that nobody has deleted by this registry, oldest first."""

    @abc.abstractmethod
    def aliases(self, name: str) -> dict[str, str]:
        """Version by alias: `champion`, `previous`, and those of others."""

    @abc.abstractmethod
    def facts(self, name: str, version: str) -> dict[str, Any]:
        """Returns the facts that a version was added with; none once its files are gone."""

    @abc.abstractmethod
    def model_dir(self, name: str, version: str) -> str:
        """Where the SavedModel of a version lies."""

    @abc.abstractmethod
    def history(self, name: str) -> list[dict[str, Any]]:
        """Returns the events of a model, oldest first: `time` (ISO 8601), `who`, `event`, `version`, `why`.

        Of promotions and rollbacks also `champion` and `previous`, as they were from then on.
        """

    @abc.abstractmethod
    def _insert(self, name: str, model_dir: str, facts: Facts, *, new_schema: bool, card: Card | None) -> str:
        """Makes a new version with a card of its facts, if there is to be one, whole or not at all. Returns it."""

    @abc.abstractmethod
    def _do(self, name: str, event: dict[str, Any]) -> None:
        """Keeps an event and does what it says: deletes its version, or points the aliases at `champion` and `previous`."""

    @contextlib.contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        """Around a decision and what is done by it: nobody else changes the model meanwhile, where that can be had."""
        yield

    def finish(self, name: str) -> None:
        """Finishes what a writer had begun who was killed: what the history says is done then, for other programs too."""
        with self._changing(name):
            pass

    def alias(self, name: str, alias: str) -> str | None:
        """The version that an alias points at, or None."""
        return self.aliases(name).get(alias)

    def has_files(self, name: str, version: str) -> bool:
        """Returns whether a version's SavedModel exists, in a folder that this program made."""
        return bool(self.facts(name, version)) and _is_model(self.model_dir(name, version))

    def standing(self, name: str, *, but: str = "") -> tuple[str | None, str]:
        """The version that another one, `but`, has to beat, and in words what was passed over, if anything.

        It is the champion; if its files are gone, the one before it, or else the newest that is there. None without champion.
        """
        aliases, gone = self.aliases(name), []
        if CHAMPION not in aliases:
            return None, ""
        named = {aliases[CHAMPION]: "the champion", aliases.get(PREVIOUS, ""): "the previous champion"}
        others = [version for version in reversed(self.versions(name)) if version != but]
        for version in filter(None, dict.fromkeys([*named, *others])):
            if self.has_files(name, version):
                return version, "; ".join([*gone, f"version {version} stands in"] if gone else [])
            if version in named:
                gone.append(f"the files of version {version}, {named[version]}, are gone, and it is passed over")
        return None, "; ".join(gone)

    def version_of(self, name: str, run: str) -> str | None:
        """The newest version that a run registered, or None."""
        return next((v for v in reversed(self.versions(name)) if self.facts(name, v).get("run") == run), None)

    def add(
        self, name: str, model_dir: str, facts: Facts, *, new_schema: bool = False, card: Card | None = None
    ) -> str:
        """Adds a SavedModel as a new version with these facts. Returns the version.

        A run that adds again gets the version it has. A number is never given twice. What takes or answers other than the
        newest version of this name is refused, unless that is wanted.
        """
        check_name(name)
        if not _is_model(model_dir):
            raise UserError(f"{model_dir}: no SavedModel here")
        if own := self._own_version(name, facts, new_schema):
            return own
        facts = {"registered": now(), "by": self._who(), **facts}
        return self._insert(name, model_dir, facts, new_schema=new_schema, card=card)

    def promote(self, name: str, version: str, *, instead_of: str | None, why: str = "") -> bool:
        """Makes a version the champion if the one to beat is still `instead_of`. Returns whether it did.

        A model was compared with one champion; if another was promoted since, nothing is known.
        """
        # Else it is decided, and not worth the seconds of a process.
        if self.standing(name, but=version)[0] == instead_of:
            self._check_answers(name, version)
        with self._changing(name):
            standing, _ = self.standing(name, but=version)
            self._check_usable(name, version)
            if standing != instead_of:
                return False
            previous = standing if standing != version else None
            self._do(name, self._event(PROMOTE, version, why, champion=version, previous=previous))
            return True

    def rollback(self, name: str, to: str | None = None, why: str = "", *, event: str = ROLLBACK) -> str:
        """Makes the previous champion, or version `to`, the champion, and the champion the previous one. Returns its version.

        Nothing is compared; the history calls it by the event.
        """
        if (version := to or self.alias(name, PREVIOUS)) is None:
            raise UserError(f"model {name!r} in {self} has no previous champion to go back to")
        self._check_answers(name, version)
        with self._changing(name):
            champion = self.alias(name, CHAMPION)
            self._check_usable(name, version)
            if version == champion:
                raise UserError(f"version {version} of model {name!r} is the champion already")
            self._do(name, self._event(event, version, why, champion=version, previous=champion))
            return version

    def delete(self, name: str, version: str, why: str = "") -> None:
        """Deletes a version that no alias points at."""
        with self._changing(name):
            self._check_known(name, version)
            if aliases := [alias for alias, pointed in self.aliases(name).items() if pointed == version]:
                raise UserError(f"version {version} of model {name!r} is {' and '.join(aliases)}; move that away first")
            self._do(name, self._event(DELETE, version, why))

    def find(self, name: str, what: str) -> str:
        """The version that is meant by a number or an alias."""
        version = self.aliases(name).get(what, what)
        self._check_known(name, version)
        return version

    def _check_known(self, name: str, version: str) -> None:
        if version not in (versions := self.versions(name)):
            if not versions:
                raise unknown("model", name, self.names())
            raise unknown(f"version of model {name!r}", version, versions)

    def _check_usable(self, name: str, version: str) -> None:
        self._check_known(name, version)
        if not self.has_files(name, version):
            raise UserError(f"the files of version {version} of model {name!r} are gone")

    def _check_answers(self, name: str, version: str) -> None:
        """Outside of `_changing`: it takes seconds, in which others need not wait."""
        self._check_usable(name, version)
        if answered := self.facts(name, version).get("answered"):
            answers.check(self.model_dir(name, version), answered)

    def _own_version(self, name: str, facts: Facts, new_schema: bool) -> str | None:
        """The version that the run of these facts has by now. Refuses what other versions' users do not expect."""
        if facts.get("run") and (own := self.version_of(name, facts["run"])):
            return own
        if not new_schema:
            self._check_schema(name, facts)
        return None

    def _check_schema(self, name: str, facts: Facts) -> None:
        newest = next((kept for version in reversed(self.versions(name)) if (kept := self.facts(name, version))), {})
        if other := [key for key in _SCHEMA if key in newest and newest[key] != facts.get(key)]:
            differences = "; ".join(
                f"{key} {str(facts.get(key))[:120]} and not {str(newest[key])[:120]}" for key in other
            )
            raise UserError(
                f"the versions of model {name!r} are for other data: this one has {differences}; give it another name, or "
                "--new-schema if whoever uses this one knows"
            )

    def _event(self, event: str, version: str, why: str, **aliases: str | None) -> dict[str, Any]:
        """Returns the event of a change."""
        return {"time": now(), "who": self._who(), "event": event, "version": version, "why": why, **aliases}

    def _who(self) -> str:
        """The account that acts, as far as it can be known."""
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
    """The time as ISO 8601, in UTC, to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def added(version: str, facts: Facts) -> dict[str, Any]:
    """The event of the history that a version's facts tell of."""
    about = {"time": facts.get("registered", ""), "who": facts.get("by", "")}
    return {**about, "event": ADD, "version": version, "why": because(facts.get("run"), facts.get("decision", {}))}


def because(run: str | None, decision: Mapping[str, Any]) -> str:
    """The run, if there was one, and the reasons of the decision, as the history has them."""
    return ": ".join(part for part in (f"run {run}" if run else "", "; ".join(decision.get("reasons", ()))) if part)


def _is_model(directory: str) -> bool:
    with reading(directory, "give one that can be reached"), store_errors():
        return (epath.Path(directory) / "saved_model.pb").exists()
