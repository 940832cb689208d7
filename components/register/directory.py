"""A model registry in a directory.

    <registry>/<model>/<version>/       the SavedModel, laid out for TensorFlow Serving, and its
                                        facts in version.json
    <registry>/<model>/history.jsonl    a line for each addition, move of an alias and deletion;
                                        lines never change, and they alone decide what holds
    <registry>/<model>/aliases.json     {"champion": "3", "previous": "2"}: the aliases according to
                                        the last line, for other programs

A change takes effect when its line is written. The files of a new version lie complete beside it by
then. If a writer is killed after that, the next one finishes its change. Only what carries this
program's label is changed or deleted.
"""

import contextlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from common.errors import UserError, reading
from common.google_cloud import MANAGED_BY, is_ours
from common.locks import locked
from common.storage.files import copy_tree, write_text
from common.storage.storage import is_remote
from components.register.registry import (
    CHAMPION,
    DELETE,
    PREVIOUS,
    Registry,
    Version,
    added,
    check_name,
    note_foreign,
    read_record,
    write_record,
)

_HISTORY, _ALIASES = "history.jsonl", "aliases.json"
_PARTIAL = ".partial-"
_COPY = "copy"  # Key of an addition: path of the files that become its version.


class DirectoryRegistry(Registry):
    """A registry in a local directory, safe for concurrent writers and for their sudden deaths.

    Raises:
      UserError: If `root` is not a local path.
    """

    def __init__(self, root: str) -> None:
        if is_remote(root):
            raise UserError(f"--registry {root}: a registry is a local directory")
        self._root = pathlib.Path(root)

    def __str__(self) -> str:
        return str(self._root)

    def names(self) -> list[str]:
        """Returns the names of the models in alphabetical order.

        Skips directories that have another name than a model may have, or whose history is damaged
        or was made by another program, and prints a note about each. A model whose versions are
        all deleted is not listed.
        """
        names = []
        for directory in sorted(self._root.glob("[a-z0-9]*/")):
            try:
                if self.versions(directory.name):
                    names.append(directory.name)
            except UserError:
                note_foreign(directory)
        return names

    def versions(self, name: str) -> list[Version]:
        """Returns the versions of a model, oldest first.

        Versions that were deleted by this registry are left out. The files of the others may have
        been removed without it. The list is empty for an unknown model.

        Raises:
          UserError: If the name is not allowed, or as `history` does.
        """
        numbers, aliases = list[str](), {}
        for event in self.history(name):
            if event["event"] == DELETE:
                numbers.remove(event["version"])
            elif CHAMPION in event:
                aliases = event
            else:
                numbers.append(event["version"])
        versions = []
        for number in numbers:
            folder = str(self._model(name) / number)
            named = [alias for alias in (CHAMPION, PREVIOUS) if aliases.get(alias) == number]
            versions.append(Version(number=number, folder=folder, model_dir=folder, aliases=named))
        return versions

    def history(self, name: str) -> list[dict[str, Any]]:
        """Returns the lines of `history.jsonl` of a model, oldest first; none for an unknown model.

        Raises:
          UserError: If the name is not allowed, the history is damaged, or another program wrote
            it.
        """
        path = self._model(name) / _HISTORY
        with reading(
            path, "the registry is damaged, or this is somebody else's file: move it elsewhere"
        ):
            if not path.exists():
                return []
            events = []
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                try:
                    events.append(json.loads(line))
                    if not (is_ours(events[-1]) and {"event", "version"} <= events[-1].keys()):
                        raise ValueError("it is not what this program writes")
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from None
            if not events:
                raise ValueError("it is empty")
            return events

    def _insert(self, name: str, model_dir: str, facts: Mapping[str, Any]) -> str:
        model = self._model(name)
        with _temporary(model) as copy:
            copy_tree(model_dir, copy)
            # Neither numbers of deleted versions, which are in the history, nor names of foreign
            # folders are used again.
            numbers = [
                *(event["version"] for event in self.history(name)),
                *(path.name for path in model.iterdir()),
            ]
            version = str(
                max((int(number) for number in numbers if number.isdecimal()), default=0) + 1
            )
            facts = {"version": version, **facts}
            write_record(model / version, facts, copy)
            # The event names the copy, so that another writer can complete the addition.
            self._do(name, {**added(version, facts), _COPY: str(copy.relative_to(model))})
        return version

    def _do(self, name: str, event: dict[str, Any]) -> None:
        path = self._model(name) / _HISTORY
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        write_text(path, f"{before}{json.dumps(dict([MANAGED_BY]) | event)}\n")
        self._finish(name)

    @contextlib.contextmanager
    def _changing(self, name: str, *, create: bool = False) -> Iterator[None]:
        model = self._model(name)
        try:
            if create:
                model.mkdir(parents=True, exist_ok=True)
            with locked(model / ".lock") if model.is_dir() else contextlib.nullcontext():
                self._finish(name)
                # Copies and new files that were left by writers which were killed.
                for partial in model.glob(f"{_PARTIAL}*"):
                    if read_record(partial):
                        _delete(partial)
                for file in (_HISTORY, _ALIASES):
                    for unfinished in model.glob(f"{file}.{'[0-9a-f]' * 32}.tmp"):
                        unfinished.unlink()
                yield
        except ConnectionError:
            raise  # Of the bucket that a model is copied from.
        except OSError as error:
            raise UserError(f"cannot write to the registry {self._root}: {error}") from error

    def _finish(self, name: str) -> None:
        """Carries out the changes that the history has, where this has not been done yet.

        It moves the files of additions into place, removes those of deletions, and writes
        `aliases.json`, unless the one there is another program's.
        """
        model = self._model(name)
        for event in self.history(name):
            version = model / event["version"]
            # The copy exists only if its writer was killed before it could rename it.
            if (copy := event.get(_COPY)) and (model / copy).exists():
                (model / copy).rename(version)
            if event["event"] == DELETE and read_record(version):
                with _temporary(model) as left:
                    version.rename(left)
        if (aliases := self.aliases(name)) and not _is_foreign(path := model / _ALIASES):
            write_text(path, json.dumps(dict([MANAGED_BY]) | aliases, indent=1) + "\n")

    def _model(self, name: str) -> pathlib.Path:
        check_name(name)
        return self._root / name


@contextlib.contextmanager
def _temporary(model: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a free path for a copy of a version, and deletes what is there at the end.

    It lies in a new folder `.partial-*` of the model, which is deleted too. If this process is
    killed, the next writer does that.
    """
    partial = pathlib.Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=model))
    write_record(partial, {})
    try:
        yield partial / "model"
    finally:
        _delete(partial)


def _delete(partial: pathlib.Path) -> None:
    # The record goes last, since only a folder with a record is deleted by the next writer.
    shutil.rmtree(partial / "model", ignore_errors=True)
    shutil.rmtree(partial)


def _is_foreign(path: pathlib.Path) -> bool:
    """Returns whether another program wrote the file at the path of an `aliases.json`.

    If so, a note about the file is printed on standard error. A file that cannot be read, or lacks
    this program's label or a champion, counts as another program's. The result is False if there is
    no file.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if not path.exists() or (
            is_ours(content := json.loads(path.read_bytes())) and CHAMPION in content
        ):
            return False
    note_foreign(path)
    return True
