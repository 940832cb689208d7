"""A model registry in a directory.

<registry>/<model>/<version>/   the SavedModel, laid out as TensorFlow Serving wants it, and version.json
<registry>/<model>/aliases.json {"champion": "3", "previous": "2"}

store = Registry.open("registry")
version = store.add("mnist", "jobs/m/model", facts)
store.promote("mnist", version)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.errors import UserError
from trainer.files import write_text

CHAMPION, PREVIOUS = "champion", "previous"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Registry:
    """Versions of models and the aliases that point at them. Safe for several writers on one file system."""

    def __init__(self, root: str) -> None:
        self._root = pathlib.Path(root)

    @classmethod
    def open(cls, root: str) -> Registry:
        """The registry at `root`; it need not exist yet."""
        if "://" in root:
            raise UserError(f"--registry {root}: a registry is a local directory")
        return cls(root)

    def versions(self, name: str) -> list[str]:
        """Versions of a model, oldest first."""
        found = [p.name for p in self._model(name).glob("*") if p.name.isdecimal() and p.is_dir()]
        return sorted(found, key=int)

    def model_dir(self, name: str, version: str) -> str:
        """Where the SavedModel of a version lies."""
        return str(self._model(name) / version)

    def facts(self, name: str, version: str) -> dict[str, Any]:
        """What is known of a version."""
        return json.loads((self._model(name) / version / "version.json").read_text(encoding="utf-8"))

    def alias(self, name: str, alias: str) -> str | None:
        """The version that an alias points at, or None."""
        return self._aliases(name).get(alias)

    def add(self, name: str, model_dir: str, facts: Mapping[str, Any]) -> str:
        """Copies a SavedModel into a new version. Returns the version.

        The copy is complete before it gets its number, and the number is taken by a rename that fails when another
        writer has it. A run that registers again gets the version it has.

        Raises:
          UserError: If there is no model in `model_dir`.
        """
        if not (pathlib.Path(model_dir) / "saved_model.pb").is_file():
            raise UserError(f"{model_dir}: no SavedModel here")
        if facts.get("run") and (own := self.version_of(name, facts["run"])):
            return own
        partial = self._model(name) / f".partial-{uuid.uuid4().hex}"
        try:
            shutil.copytree(model_dir, partial)
            while True:
                version = str(int((self.versions(name) or ["0"])[-1]) + 1)
                write_text(partial / "version.json", json.dumps({"version": version, **facts}, indent=1) + "\n")
                try:
                    partial.rename(self._model(name) / version)
                    return version
                except OSError:
                    if not (self._model(name) / version).exists():
                        raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def version_of(self, name: str, run: str) -> str | None:
        """The version that a run registered, or None."""
        return next((v for v in reversed(self.versions(name)) if self.facts(name, v).get("run") == run), None)

    def metrics(self, name: str, version: str, fingerprint: str, split: str) -> dict[str, float] | None:
        """What a version scored when it was registered, if on these records."""
        facts = self.facts(name, version)
        return facts["metrics"] if (facts["fingerprint"], facts["split"]) == (fingerprint, split) else None

    def promote(self, name: str, version: str, *, instead_of: str | None) -> bool:
        """Makes a version the champion if the champion is still `instead_of`. Returns whether it did.

        A model is better than the champion that it was compared with; if another was promoted since, nothing is known.
        """
        with self._locked(name):
            aliases = self._aliases(name)
            if aliases.get(CHAMPION) != instead_of:
                return False
            self._point(name, {CHAMPION: version, PREVIOUS: instead_of})
            return True

    def rollback(self, name: str) -> str:
        """Makes the previous champion the champion again. Returns its version.

        Raises:
          UserError: If there is none.
        """
        with self._locked(name):
            aliases = self._aliases(name)
            if not aliases.get(PREVIOUS):
                raise UserError(f"model {name!r} in {self._root} has no previous champion to go back to")
            self._point(name, {CHAMPION: aliases[PREVIOUS], PREVIOUS: aliases[CHAMPION]})
            return aliases[PREVIOUS]

    def _model(self, name: str) -> pathlib.Path:
        if not _NAME.fullmatch(name):
            raise UserError(f"model name {name!r}: lower-case letters, digits, - and _ only, at most 63")
        return self._root / name

    def _aliases(self, name: str) -> dict[str, str]:
        path = self._model(name) / "aliases.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def _point(self, name: str, aliases: Mapping[str, str | None]) -> None:
        text = json.dumps({k: v for k, v in aliases.items() if v}, indent=1) + "\n"
        write_text(self._model(name) / "aliases.json", text)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        self._model(name).mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._model(name) / ".lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
