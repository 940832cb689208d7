"""A folder of images with a folder for each class.

    reader = FolderReader()
    cut = reader.cut("flowers", pieces=8, piece_bytes=1 << 26)      # flowers/rose/1.jpg, or flowers/{train,test}/rose/1.jpg
    source = reader.open("flowers", cut)

Classes are the folders' names in their order. Images are taken in the order of a hash of class and file name: then
every part of the result has all classes, and an image stays where it is when others come and go.
"""

import dataclasses
import hashlib
import math
import os
import pathlib
from collections.abc import Iterator

from components.convert.images.encodings import ImageSource, Picture
from components.convert.pieces import Cut, Piece, evenly
from components.convert.sources.base import Paths, Reader
from components.files.listing import File
from components.files.reading import opened
from trainer.base.errors import UserError, readable

_SPLITS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
_SUFFIXES = (".png", ".jpg", ".jpeg")
_PIECE_IMAGES = 512
_HEAD_BYTES = 1 << 10  # that are read of an image at once while only its head is looked at
_Entry = tuple[str, int, str]  # a file's path from the root, its bytes, and another text whenever it is written
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
        return [root / name for images in found.values() for name, *_ in images]

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Lists the images; a piece has some hundreds."""
        root, found, strays = self._find(source)
        if strays:
            others = f" and {len(strays) - 1:,} more" if len(strays) > 1 else ""
            print(f"left out: {strays[0]}{others} (only PNG and JPEG files in the classes' folders are read)")
        classes = {split: {_class(name) for name, *_ in images} for split, images in found.items()}
        class_names = sorted(set().union(*classes.values()))
        for name in class_names:
            if any("\ud800" <= character <= "\udfff" for character in name):
                raise UserError(f"{root}: class {name!r} is not UTF-8; rename that folder")
        if absent := set(class_names) - classes["train"]:
            raise UserError(f"{root}: class {min(absent)!r} has no images for training")
        if len(class_names) < 2:
            raise UserError(f"{root}: has one class, {class_names[0]!r}; needed are {_LAYOUT}")
        cut = []
        for split, images in found.items():
            num_bytes, least = sum(size for _, size, _ in images), pieces if split == "train" else 1
            count = least * math.ceil(max(num_bytes / piece_bytes, len(images) / _PIECE_IMAGES) / least)
            first = sum(piece.extent for piece in cut)
            cut += evenly(split, len(images), count=count, each_bytes=num_bytes // len(images), file=first)
        names, sizes, versions = zip(*(image for images in found.values() for image in images), strict=True)
        facts = {"class_names": class_names, "names": names, "num_bytes": sizes, "versions": versions}
        return Cut(pieces=tuple(cut), facts=facts)

    def open(self, source: Paths, cut: Cut) -> "FolderSource":
        """The images, which are read when they are asked for."""
        return FolderSource(
            name=self.name,
            origin="PNG and JPEG files in a folder for each class",
            class_names=tuple(cut.facts["class_names"]),
            size=self.image_size,
            encoding=self.encoding,
            root=str(source),
            cut=cut,
        )

    def _find(self, source: Paths) -> tuple[pathlib.Path, dict[str, list[_Entry]], list[str]]:
        """The folder, by split the images in their order, and what was left out."""
        root = self.directory(source, f"DIR, with {_LAYOUT}")
        folders, files = _entries(root)
        strays, parts = (
            [name for name, *_ in files],
            {folder: _SPLITS[folder] for folder in folders if folder in _SPLITS},
        )
        if "train" in parts and _entries(root, "train")[0]:
            strays += [f"{folder}/" for folder in folders if folder not in parts]
            if {"val", "validation"} <= set(parts):
                raise UserError(f"{root}: has both val and validation; keep one")
        else:
            parts = {"": "train"}  # a class may be called so, too
        found = {}
        for folder, split in parts.items():
            classes, others = _entries(root, folder)
            images, others = [], others * bool(folder)
            for inner, files in (_entries(root, name) for name in classes):
                strays += [f"{name}/" for name in inner]
                for file in files:
                    (images if file[0].lower().endswith(_SUFFIXES) else others).append(file)
            if not images:
                raise UserError(f"{root / folder}: no PNG or JPEG files in folders of it; needed are {_LAYOUT}")
            found[split] = sorted(images, key=_order)
            strays += [name for name, *_ in others]
        return root, found, sorted(strays)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderSource(ImageSource):
    """The images of a folder, of whose files a piece has those from `start` to `stop` behind the first of its split."""

    root: str
    cut: Cut

    def pictures(self, piece: Piece, *, heads: bool) -> Iterator[Picture]:
        """The images of a piece."""
        labels = {name: (label,) for label, name in enumerate(self.class_names)}
        first = piece.file + piece.start
        for i in range(first, piece.file + piece.stop):
            name, num_bytes, version = (self.cut.facts[fact][i] for fact in ("names", "num_bytes", "versions"))
            place = os.path.join(self.root, name)
            file = File(path=place, num_bytes=num_bytes, version=version)
            with (
                readable(place),
                open(place, "rb", _HEAD_BYTES) if heads else opened(file, stop=num_bytes) as content,
            ):
                position, label = piece.position + i - first, labels[_class(name)]
                yield Picture(position=position, place=place, num_bytes=num_bytes, content=content, label=label)


def _entries(root: pathlib.Path, folder: str = "") -> tuple[list[str], list[_Entry]]:
    """Folders and files in a folder, in order; hidden ones are passed over."""
    folders, files = [], []
    with os.scandir(root / folder) as entries:
        for entry in sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name):
            name, status = os.path.join(folder, entry.name), entry.stat()  # fails where a link leads nowhere
            if entry.is_dir():
                folders.append(name)
            else:
                files.append((name, status.st_size, str(status.st_mtime_ns)))
    return folders, files


def _order(image: _Entry) -> bytes:
    return hashlib.sha256(os.fsencode("/".join(image[0].split(os.sep)[-2:]))).digest()


def _class(name: str) -> str:
    return name.split(os.sep)[-2]
