"""A model registry in a directory.

<registry>/<model>/<version>/   the SavedModel, laid out as TensorFlow Serving wants it, and version.json
<registry>/<model>/aliases.json {"champion": "3", "previous": "2"}

store = Registry("registry")
version = store.add("mnist", "jobs/m/model", facts)
store.promote("mnist", version, instead_of=store.alias("mnist", CHAMPION))
"""

import contextlib
import json
import pathlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from trainer.base.errors import UserError, reading, unknown
from trainer.base.files import copy_tree, is_remote, store_errors, write_text
from trainer.base.locks import locked

CHAMPION, PREVIOUS = "champion", "previous"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_PARTIAL = ".partial-"
_ABANDONED_S = 86_400.0  # no copy takes a day: the writer of one that old was killed


def check_name(name: str) -> None:
    """Raises a UserError for what is no name of a model."""
    if not _NAME.fullmatch(name):
        raise UserError(f"model name {name!r}: lower-case letters, digits, - and _ only, at most 63")


class Registry:
    """Versions of models and the aliases that point at them. Safe for several writers on one file system.

    All methods raise UserError for a version that is not there, and where the registry cannot be read or written.
    """

    def __init__(self, root: str) -> None:
        """The registry at `root`; it need not exist yet."""
        if is_remote(root):
            raise UserError(f"--registry {root}: a registry is a local directory")
        self._root = pathlib.Path(root)

    def versions(self, name: str) -> list[str]:
        """Versions of a model, oldest first."""
        found = [p.name for p in self._model(name).glob("*") if p.name.isdecimal() and p.is_dir()]
        return sorted(found, key=int)

    def model_dir(self, name: str, version: str) -> str:
        """Where the SavedModel of a version lies."""
        return str(self._model(name) / version)

    def alias(self, name: str, alias: str) -> str | None:
        """The version that an alias points at, or None."""
        return self._aliases(name).get(alias)

    def add(self, name: str, model_dir: str, facts: Mapping[str, Any]) -> str:
        """Copies a SavedModel into a new version. Returns the version.

        The copy is complete before a rename gives it its number. A number that an alias names is never given again. A
        run that registers again gets the version it has.
        """
        model = self._model(name)
        with self._writing():
            with store_errors():
                if not (epath.Path(model_dir) / "saved_model.pb").exists():
                    raise UserError(f"{model_dir}: no SavedModel here")
            model.mkdir(parents=True, exist_ok=True)
            _sweep(model)
            with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=model) as partial:
                copy = pathlib.Path(partial) / "model"
                copy_tree(model_dir, copy)
                with locked(model / ".lock"):
                    if facts.get("run") and (own := self.version_of(name, facts["run"])):
                        return own
                    taken = [*self.versions(name), *self._aliases(name).values()]
                    version = str(max(map(int, taken), default=0) + 1)
                    write_text(copy / "version.json", json.dumps({"version": version, **facts}, indent=1) + "\n")
                    copy.rename(model / version)
                    return version

    def version_of(self, name: str, run: str) -> str | None:
        """The version that a run registered, or None."""
        for version in reversed(self.versions(name)):
            if _read(self._model(name) / version / "version.json").get("run") == run:
                return version
        return None

    def decided(self, name: str, fingerprint: str, split: str) -> int:
        """How many versions were made by what they did on that split of the dataset with that fingerprint."""
        read = 0
        for version in self.versions(name):
            with contextlib.suppress(UserError):  # a version that is damaged says nothing
                facts = _read(self._model(name) / version / "version.json")
                read += (facts.get("fingerprint"), facts.get("split")) == (fingerprint, split)
        return read

    def promote(self, name: str, version: str, *, instead_of: str | None) -> bool:
        """Makes a version the champion if the champion is still `instead_of`. Returns whether it did.

        A model was compared with one champion; if another was promoted since, nothing is known.
        """
        with self._writing(), locked(self._model(name) / ".lock"):
            if self._aliases(name).get(CHAMPION) != instead_of:
                return False
            self._point(name, {CHAMPION: version, PREVIOUS: instead_of})
            return True

    def rollback(self, name: str) -> str:
        """Makes the previous champion the champion again, and the champion the previous one. Returns its version."""
        if not self.alias(name, PREVIOUS):
            raise UserError(f"model {name!r} in {self._root} has no previous champion to go back to")
        with self._writing(), locked(self._model(name) / ".lock"):
            aliases = self._aliases(name)
            self._point(name, {CHAMPION: aliases[PREVIOUS], PREVIOUS: aliases[CHAMPION]})
            return aliases[PREVIOUS]

    def _model(self, name: str) -> pathlib.Path:
        check_name(name)
        return self._root / name

    def _aliases(self, name: str) -> dict[str, str]:
        path = self._model(name) / "aliases.json"
        return _read(path) if path.exists() else {}

    def _point(self, name: str, aliases: Mapping[str, str | None]) -> None:
        if aliases[CHAMPION] not in (versions := self.versions(name)):
            raise unknown(f"version of model {name!r}", aliases[CHAMPION], versions)
        text = json.dumps({k: v for k, v in aliases.items() if v}, indent=1) + "\n"
        write_text(self._model(name) / "aliases.json", text)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write to the registry {self._root}: {error}") from error


def _sweep(model: pathlib.Path) -> None:
    """Deletes copies whose writers were killed."""
    for left in model.glob(f"{_PARTIAL}*"):
        with contextlib.suppress(FileNotFoundError):  # its writer ends just now
            if time.time() - left.stat().st_mtime > _ABANDONED_S:
                shutil.rmtree(left)


def _read(path: pathlib.Path) -> dict[str, Any]:
    with reading(path, "the registry is damaged"):
        return json.loads(path.read_text(encoding="utf-8"))
