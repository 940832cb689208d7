"""A file of a dataset that has changed is named, whatever has happened to it."""

import contextlib
import pathlib
import random
import re
from collections.abc import Iterator

import pytest
import trips

from common.errors import UserError
from common.manifest import FILE, Manifest
from components.convert import output
from components.convert.convert import convert
from components.convert.options import Options
from trainer.data import records, shards
from trainer.data.placement import Choice, provide_files


@pytest.fixture(scope="module", params=["images", "rows with an index"])
def dataset(request, tmp_path_factory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("dataset")
    kind = {} if request.param == "images" else trips.write(root, trips.rows(300))
    convert(Options(**kind, output=str(root / "out"), shards=5))
    return root / "out"


def damage(directory: pathlib.Path, kind: str, chance: random.Random) -> pathlib.Path:
    """Damages a dataset; returns the file that has to be named."""
    paths = sorted(path for path in directory.iterdir() if path.suffix in (".tfrecord", ".hashes"))
    paths += directory.glob("train-*.index")  # Reading in order takes no other index.
    path = directory / FILE if kind in ("edit", "scribble") else chance.choice(paths)
    data = path.read_bytes()
    if kind in ("flip", "scribble"):
        place = chance.randrange(len(data))
        path.write_bytes(
            data[:place] + bytes([data[place] ^ chance.randrange(1, 256)]) + data[place + 1 :]
        )
    elif kind == "resize":
        shorter = data[: chance.choice([0, -1, chance.randrange(len(data))])]
        path.write_bytes(
            chance.choice([shorter, data + b"\0", data + chance.choice(paths).read_bytes()])
        )
    elif kind == "swap":
        other = chance.choice(
            [other for other in paths if other.suffix == path.suffix and other != path]
        )
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
        return min(path, other)
    elif kind == "delete":
        path.unlink()
    else:
        # A value of the manifest, or a name in it, is another one.
        text = data.decode()
        value = chance.choice(
            list(re.finditer(r'"[^"]*"|(?<=[ \[])-?[\d.]+|null|true|false', text))
        )
        news = ["null", "0", "-1", "1.5", '"x"', "[]", "{}", "[1]", "true", "1" + 30 * "0"]
        new = '"x"' if text[value.end()] == ":" else chance.choice(news)
        path.write_text(text[: value.start()] + new + text[value.end() :])
    return path


@contextlib.contextmanager
def restored(directory: pathlib.Path) -> Iterator[None]:
    """Restores the files of a directory at the end."""
    before = {path: path.read_bytes() for path in directory.iterdir()}
    yield
    for path, data in before.items():
        path.write_bytes(data)


def verify(dataset: pathlib.Path) -> None:
    manifest = Manifest.load(dataset)
    for split in manifest.splits:
        shards.verify(manifest, str(dataset), split)


def read(dataset: pathlib.Path) -> None:
    manifest = Manifest.load(dataset)
    for split, content in manifest.splits.items():
        if split == "train":
            provide_files(Choice(str(dataset), "mapped", "as asked for", None), manifest)
        batches = records.batches(manifest, str(dataset), split, 100)
        assert sum(len(batch["label"]) for batch in batches) == content.examples
        assert (
            sum(map(len, shards.content_hashes(manifest, str(dataset), split))) == content.examples
        )


def compare(dataset: pathlib.Path) -> None:
    output.verify(str(dataset), Manifest.load(dataset))


KINDS = {"flip": 7, "resize": 9, "swap": 3, "delete": 3, "edit": 12, "scribble": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_is_named(dataset, kind):
    before = Manifest.load(dataset)
    for seed in range(KINDS[kind]):
        with restored(dataset):
            path = damage(dataset, kind, random.Random(seed))
            for check in (verify, read, compare):
                try:
                    check(dataset)
                except UserError as error:
                    assert str(path) in str(error) and "\n" not in str(error), seed
                else:  # 1e5 and 1E5 are the same.
                    assert path.name == FILE and Manifest.load(dataset) == before, seed
    verify(dataset)
