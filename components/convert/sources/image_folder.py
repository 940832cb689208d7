"""A folder of images with a folder for each class.

    reader = FolderReader()
    cut = reader.cut("flowers", pieces=8, piece_bytes=1 << 26)      # flowers/rose/1.jpg, or flowers/{train,test}/rose/1.jpg
    source = reader.open(cut)

Classes are the folders' names in their order. Images are taken in the order of a hash of class and file name: then
every part of the result has all classes, and an image stays where it is when others come and go.
"""

import dataclasses
import hashlib
import math
import os
from collections.abc import Iterator

from common.errors import UserError
from common.storage.files import list_folder, open_files
from common.storage.storage import File, map_in_threads
from components.convert.images.encodings import ImageSource, Picture
from components.convert.pieces import Cut, Piece, evenly
from components.convert.sources.base import Paths, Reader, print_left_out, there

_SPLITS = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
_SUFFIXES = (".png", ".jpg", ".jpeg")
_PIECE_IMAGES = 512
_HEAD_BYTES = 1 << 12  # that are read of an image while only its head is looked at, unless that is longer
_LAYOUT = "DIR/class/name.png, or DIR/{train,validation,test}/class/name.png"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderReader(Reader):
    """Reads a folder of images."""

    name: str = "images"
    takes = frozenset({"image_size", "encoding"})
    image_size: tuple[int, int] | None = None
    encoding: str | None = None

    def files(self, source: Paths) -> list[File]:
        """The images."""
        return [file for images in self._find(source)[1].values() for file in images]

    def cut(self, source: Paths, *, pieces: int, piece_bytes: int) -> Cut:
        """Lists the images; a piece has some hundreds."""
        root, found, strays = self._find(source)
        print_left_out(root, strays, "only PNG and JPEG files in the classes' folders are read")
        classes = {split: {_class(file.path) for file in images} for split, images in found.items()}
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
            num_bytes, least = sum(file.num_bytes for file in images), pieces if split == "train" else 1
            count = least * math.ceil(max(num_bytes / piece_bytes, len(images) / _PIECE_IMAGES) / least)
            first = sum(piece.extent for piece in cut)
            cut += evenly(split, len(images), count=count, each_bytes=num_bytes // len(images), file=first)
        files = [file for images in found.values() for file in images]
        facts = {
            "class_names": class_names,
            "root": root,
            "names": [file.path[len(root) + 1 :] for file in files],
            "num_bytes": [file.num_bytes for file in files],
            "versions": [file.version for file in files],
        }
        return Cut(pieces=tuple(cut), facts=facts)

    def open(self, cut: Cut) -> "FolderSource":
        """The images, which are read when they are asked for."""
        return FolderSource(
            name=self.name,
            origin="PNG and JPEG files in a folder for each class",
            class_names=tuple(cut.facts["class_names"]),
            size=self.image_size,
            encoding=self.encoding,
            cut=cut,
        )

    def _find(self, source: Paths) -> tuple[str, dict[str, list[File]], list[str]]:
        """The folder, by split the images in their order, and what was left out."""
        root = self.directory(source, f"DIR, with {_LAYOUT}")
        folders, others = _entries(root)
        parts = {folder: _SPLITS[name] for folder in folders if (name := folder[len(root) + 1 :]) in _SPLITS}
        strays = [file.path for file in others]
        if f"{root}/train" in parts and _entries(f"{root}/train")[0]:
            strays += [f"{folder}/" for folder in folders if folder not in parts]
            if {"val", "validation"} <= {os.path.basename(part) for part in parts}:
                raise UserError(f"{root}: has both val and validation; keep one")
        else:
            parts = {root: "train"}  # a class may be called so, too
        found = {}
        for part, split in parts.items():
            classes, others = _entries(part)
            images, others = [], others * (part != root)
            for inner, files in map_in_threads(_entries, classes):
                strays += [f"{folder}/" for folder in inner]
                for file in files:
                    (images if file.path.lower().endswith(_SUFFIXES) else others).append(file)
            if not images:
                raise UserError(f"{part}: no PNG or JPEG files in folders of it; needed are {_LAYOUT}")
            found[split] = sorted(images, key=_order)
            strays += [file.path for file in others]
        return root, found, sorted(stray[len(root) + 1 :] for stray in strays)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderSource(ImageSource):
    """The images of a folder, of whose files a piece has those from `start` to `stop` behind the first of its split."""

    cut: Cut

    def pictures(self, piece: Piece, *, heads: bool) -> Iterator[Picture]:
        """The images of a piece."""
        labels = {name: (label,) for label, name in enumerate(self.class_names)}
        facts, span = self.cut.facts, slice(piece.file + piece.start, piece.file + piece.stop)
        found = zip(*(facts[fact][span] for fact in ("names", "num_bytes", "versions")), strict=True)
        files = [File(path=f"{facts['root']}/{name}", num_bytes=size, version=version) for name, size, version in found]
        for i, content in enumerate(open_files(files, _HEAD_BYTES if heads else None)):
            with content:
                yield Picture(
                    position=piece.position + i,
                    place=files[i].path,
                    num_bytes=files[i].num_bytes,
                    content=content,
                    label=labels[_class(files[i].path)],
                )


def _entries(folder: str) -> tuple[list[str], list[File]]:
    """Folders and files in a folder, in order; hidden ones are passed over."""
    folders, files = list_folder(folder)
    return (
        [inner for inner in folders if not os.path.basename(inner).startswith(".")],
        there([file for file in files if not os.path.basename(file.path).startswith(".")]),
    )


def _order(image: File) -> bytes:
    return hashlib.sha256(os.fsencode("/".join(image.path.split("/")[-2:]))).digest()


def _class(path: str) -> str:
    return path.split("/")[-2]
