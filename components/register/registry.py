"""A model registry in a directory.

<registry>/<model>/<version>/     the SavedModel, laid out as TensorFlow Serving wants it, and version.json with its facts
<registry>/<model>/history.jsonl  what was added, moved and deleted, a line each, never changed; what it says, holds
<registry>/<model>/aliases.json   {"champion": "3", "previous": "2"}: its last word on that, for other programs

A version is there when a rename gives its copy a number; a move or a deletion is done when its line is written. Whoever writes
next finishes what a writer began that was killed in between.
"""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from components.register.store import ADD, CHAMPION, DELETE, NAME, PREVIOUS, Card, Facts, Store, added, check_name
from trainer.base.errors import UserError, reading
from trainer.base.files import copy_tree, is_remote, write_text
from trainer.base.locks import locked

_ALIASES, _CARD, _FACTS, _HISTORY = "aliases.json", "MODEL_CARD.md", "version.json", "history.jsonl"
_PARTIAL = ".partial-"
_ABANDONED_S = 86_400.0  # no copy takes a day: the writer of one that old was killed


class Registry(Store):
    """Safe for several writers on one file system, and for their deaths."""

    def __init__(self, root: str) -> None:
        if is_remote(root):
            raise UserError(f"--registry {root}: a registry is a local directory")
        self._root = pathlib.Path(root)

    def __str__(self) -> str:
        return str(self._root)

    def names(self) -> list[str]:
        """Names of the models, in order."""
        names = []
        for directory in sorted(path for path in self._root.glob("[a-z0-9]*") if path.is_dir()):
            if not NAME.fullmatch(directory.name):
                _report_foreign(directory)
            elif self.versions(directory.name):
                names.append(directory.name)
        return names

    def versions(self, name: str) -> list[str]:
        """Versions of a model that nobody has deleted by this registry, oldest first."""
        events = self.history(name)
        deleted = {event["version"] for event in events if event["event"] == DELETE}
        return sorted({event["version"] for event in events} - deleted, key=int)

    def aliases(self, name: str) -> dict[str, str]:
        """Version by alias: `champion` and `previous`."""
        moves = [event for event in self._recorded(name) if CHAMPION in event]
        return {alias: v for alias in (CHAMPION, PREVIOUS) if moves and (v := moves[-1][alias])}

    def facts(self, name: str, version: str) -> dict[str, Any]:
        """What was kept of a version when it was added; nothing once its files are gone."""
        directory = self._model(name) / version
        with reading(directory / _FACTS, "the registry is damaged"):
            return json.loads((directory / _FACTS).read_bytes()) if directory.is_dir() else {}

    def model_dir(self, name: str, version: str) -> str:
        """Where the SavedModel of a version lies."""
        return str(self._model(name) / version)

    def history(self, name: str) -> list[dict[str, Any]]:
        """What happened to a model, oldest first."""
        events = self._recorded(name)
        return [*events, *self._unrecorded(name, events)]

    def _insert(self, name: str, model_dir: str, facts: Facts, *, new_schema: bool, card: Card | None) -> str:
        model = self._model(name)
        with self._writing():
            model.mkdir(parents=True, exist_ok=True)
            _sweep(model)
            with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=model) as partial:
                copy = pathlib.Path(partial) / "model"
                copy_tree(model_dir, copy)
                with self._changing(name):
                    if own := self._own_version(name, facts, new_schema):  # another writer may have been the first
                        return own
                    taken = [int(event["version"]) for event in self._recorded(name)]
                    taken += [int(path.name) for path in model.iterdir() if path.name.isdecimal()]
                    version = str(max(taken, default=0) + 1)
                    facts = {"version": version, **facts}
                    write_text(copy / _FACTS, json.dumps(facts, indent=1) + "\n")
                    if card:
                        write_text(copy / _CARD, card(facts))
                    copy.rename(model / version)
                    self._record(name, added(version, facts))
                    return version

    def _do(self, name: str, event: dict[str, Any]) -> None:
        self._record(name, event)
        self._settle(name)

    @contextlib.contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        """Holds the model's lock, with all finished that writers before have begun."""
        if not self._model(name).is_dir():
            yield
            return
        with self._writing(), locked(self._model(name) / ".lock"):
            self._settle(name)
            yield

    def _settle(self, name: str) -> None:
        """Makes the directory what the history says, and the history whole."""
        model, path = self._model(name), self._model(name) / _HISTORY
        if path.exists() and (content := path.read_bytes()) and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)  # half a line: nothing was done by it yet
        events = self._recorded(name)
        for event in self._unrecorded(name, events):
            self._record(name, event)
        for event in events:
            if event["event"] == DELETE and (left := model / event["version"]).is_dir():
                shutil.rmtree(left.rename(model / f"{_PARTIAL}deleted-{event['version']}"))
        if aliases := self.aliases(name):
            write_text(model / _ALIASES, json.dumps(aliases, indent=1) + "\n")

    def _recorded(self, name: str) -> list[dict[str, Any]]:
        """The whole lines of the history."""
        path = self._model(name) / _HISTORY
        with reading(path, "the registry is damaged"):
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def _unrecorded(self, name: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Events of versions that were added by writers who died before they wrote that down."""
        known = {event["version"] for event in events if event["event"] == ADD}
        directories = [path for path in self._model(name).glob("*") if path.name.isdecimal() and path.is_dir()]
        unrecorded = [path for path in directories if path.name not in known]
        return [event for path in sorted(unrecorded, key=lambda path: int(path.name)) if (event := _added(path))]

    def _record(self, name: str, event: Mapping[str, Any]) -> None:
        with (self._model(name) / _HISTORY).open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _model(self, name: str) -> pathlib.Path:
        check_name(name)
        return self._root / name

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write to the registry {self._root}: {error}") from error


def _added(directory: pathlib.Path) -> dict[str, Any] | None:
    """The event of the version in a directory; None if this program did not write its `version.json`."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        facts = json.loads((directory / _FACTS).read_bytes())
        if facts.get("version") == directory.name:
            return added(directory.name, facts)
    _report_foreign(directory)
    return None


@functools.cache
def _report_foreign(path: pathlib.Path) -> None:
    """Says once of each path that it is skipped."""
    print(f"note: {path} is no model of this registry and is skipped; move it elsewhere", file=sys.stderr)


def _sweep(model: pathlib.Path) -> None:
    """Deletes copies whose writers were killed."""
    for left in model.glob(f"{_PARTIAL}*"):
        with contextlib.suppress(FileNotFoundError):  # its writer ends just now
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(left)
