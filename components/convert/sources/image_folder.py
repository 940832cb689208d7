"""A folder of images with a folder for each class.

    source = FolderReader().read("flowers")      # flowers/rose/1.jpg, or flowers/{train,validation,test}/rose/1.jpg

Classes are the folders' names in their order. Images are taken in the order of a hash of class and file name: then
every part of the result has all classes, and an image stays where it is when others come and go.
"""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from components.convert.images.pixels import Pictures
from components.convert.source import Source
from components.convert.sources.base import Paths, Reader
from components.convert.writing.column_store import MEMORY, Store
from trainer.base.errors import UserError

_SPLITS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
_SUFFIXES = (".png", ".jpg", ".jpeg")
_LAYOUT = "DIR/class/name.png, or DIR/{train,validation,test}/class/name.png"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderReader(Reader):
    """Reads a folder of images."""

    name: str = "images"
    takes = frozenset({"image_size", "encoding"})
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def files(self, source: Paths) -> list[pathlib.Path]:
        """The images."""
        root, found, _ = self._find(source)
        return [root / name for names in found.values() for name in names]

    def read(self, source: Paths, store: Store = MEMORY) -> Source:
        """Finds the images, which are read when they are asked for."""
        from components.convert.images.encodings import arrange

        root, found, strays = self._find(source)
        if strays:
            others = f" and {len(strays) - 1:,} more" if len(strays) > 1 else ""
            print(f"left out: {strays[0]}{others} (only PNG and JPEG files in the classes' folders are read)")
        class_names = tuple(sorted({_class(name) for names in found.values() for name in names}))
        for name in class_names:
            if any("\ud800" <= character <= "\udfff" for character in name):
                raise UserError(f"{root}: class {name!r} is not UTF-8; rename that folder")
        if absent := set(class_names) - {_class(name) for name in found["train"]}:
            raise UserError(f"{root}: class {min(absent)!r} has no images for training")
        if len(class_names) < 2:
            raise UserError(f"{root}: has one class, {class_names[0]!r}; needed are {_LAYOUT}")
        labels = {class_name: label for label, class_name in enumerate(class_names)}
        pictures = {
            split: (_pictures(root, names), np.array([labels[_class(name)] for name in names]))
            for split, names in found.items()
        }
        return arrange(
            pictures,
            store,
            size=self.image_size,
            encoding=self.encoding,
            name=self.name,
            origin="PNG and JPEG files in a folder for each class",
            class_names=class_names,
        )

    def _find(self, source: Paths) -> tuple[pathlib.Path, dict[str, list[str]], list[str]]:
        """The folder, by split the images' paths from there in their order, and what was left out."""
        root = self.directory(source, f"DIR, with {_LAYOUT}")
        folders, strays = _entries(root)
        parts = {folder: _SPLITS[folder] for folder in folders if folder in _SPLITS}
        if "train" in parts and _entries(root, "train")[0]:
            strays += [f"{folder}/" for folder in folders if folder not in parts]
            if {"val", "validation"} <= set(parts):
                raise UserError(f"{root}: has both val and validation; keep one")
        else:
            parts = {"": "train"}  # a class may be called so, too
        found = {}
        for folder, split in parts.items():
            classes, others = _entries(root, folder)
            names, strays = [], strays + others * bool(folder)
            for inner, files in (_entries(root, name) for name in classes):
                strays += [f"{name}/" for name in inner]
                for name in files:
                    (names if name.lower().endswith(_SUFFIXES) else strays).append(name)
            if not names:
                raise UserError(f"{root / folder}: no PNG or JPEG files in folders of it; needed are {_LAYOUT}")
            found[split] = sorted(names, key=_order)
        return root, found, sorted(strays)


def _entries(root: pathlib.Path, folder: str = "") -> tuple[list[str], list[str]]:
    """Folders and files in a folder, by their paths from the root, in order; hidden ones are passed over."""
    with os.scandir(root / folder) as entries:
        shown = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)
        for link in (entry for entry in shown if entry.is_symlink()):
            link.stat()  # fails where it leads nowhere: a class would be missed by nobody
        paths = [(os.path.join(folder, entry.name), entry.is_dir()) for entry in shown]
    return [path for path, is_dir in paths if is_dir], [path for path, is_dir in paths if not is_dir]


def _order(name: str) -> bytes:
    return hashlib.sha256(os.fsencode("/".join(name.split(os.sep)[-2:]))).digest()


def _class(name: str) -> str:
    return name.split(os.sep)[-2]


def _pictures(root: pathlib.Path, names: Sequence[str]) -> Pictures:
    def place(i: int) -> str:
        return os.path.join(root, names[i])

    lengths = np.fromiter((os.stat(root / name).st_size for name in names), np.int64, len(names))
    return Pictures(lengths=lengths, place=place, open=lambda i: open(place(i), "rb"))
