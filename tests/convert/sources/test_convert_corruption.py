"""A file of a dataset that has changed is named, whatever has happened to it."""

import contextlib
import pathlib
import random
import re
from collections.abc import Callable, Iterator

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


def flip(directory: pathlib.Path, paths: list[pathlib.Path], chance: random.Random) -> pathlib.Path:
    path = chance.choice(paths)
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
    path.write_bytes(data)
    return path


def resize(directory: pathlib.Path, paths: list[pathlib.Path], chance: random.Random) -> pathlib.Path:
    path = chance.choice(paths)
    data = path.read_bytes()
    less = data[: chance.choice([0, -1, chance.randrange(len(data))])]
    path.write_bytes(chance.choice([less, data + b"\0", data + chance.choice(paths).read_bytes()]))
    return path


def swap(directory: pathlib.Path, paths: list[pathlib.Path], chance: random.Random) -> pathlib.Path:
    first = chance.choice(paths)
    second = chance.choice([path for path in paths if path.suffix == first.suffix and path != first])
    data = first.read_bytes(), second.read_bytes()
    second.write_bytes(data[0])
    first.write_bytes(data[1])
    return min(first, second)


def delete(directory: pathlib.Path, paths: list[pathlib.Path], chance: random.Random) -> pathlib.Path:
    path = chance.choice(paths)
    path.unlink()
    return path


def edit(directory: pathlib.Path, paths: list[pathlib.Path], chance: random.Random) -> pathlib.Path:
    """Changes one value of the manifest, or a name in it."""
    path = directory / FILE
    text = path.read_text()
    value = chance.choice(list(re.finditer(r'"[^"]*"|(?<=[ \[])-?[\d.]+|null|true|false', text)))
    news = ["null", "0", "-1", "1.5", '"x"', "[]", "{}", "[1]", "true", "1" + 30 * "0"]
    new = '"x"' if text[value.end()] == ":" else chance.choice(news)
    path.write_text(text[: value.start()] + new + text[value.end() :])
    return path


def scribble(directory: pathlib.Path, paths: list[pathlib.Path], chance: random.Random) -> pathlib.Path:
    """Changes a byte of the manifest that is not between values."""
    return flip(directory, [directory / FILE], chance)


@contextlib.contextmanager
def damaged(directory: pathlib.Path, seed: int, kind: Callable[..., pathlib.Path]) -> Iterator[pathlib.Path]:
    """Around what is done with a dataset while it is damaged; gives the file to be named."""
    before = {path: path.read_bytes() for path in sorted(directory.iterdir())}
    paths = [path for path in before if path.suffix in (".tfrecord", ".hashes")]
    paths += directory.glob("train-*.index")  # reading in order takes no index
    try:
        yield kind(directory, paths, random.Random(seed))
    finally:
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
        assert sum(map(len, shards.content_hashes(manifest, str(dataset), split))) == content.examples


def compare(dataset: pathlib.Path) -> None:
    output.verify(str(dataset), Manifest.load(dataset))


KINDS = {flip: 7, resize: 9, swap: 3, delete: 3, edit: 12, scribble: 4}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_is_named(dataset, kind):
    before = Manifest.load(dataset)
    for seed in range(KINDS[kind]):
        with damaged(dataset, seed, kind) as path:
            for check in (verify, read, compare):
                try:
                    check(dataset)
                except UserError as error:
                    assert str(path) in str(error) and "\n" not in str(error), seed
                else:  # 1e5 and 1E5 are the same.
                    assert path.name == FILE and Manifest.load(dataset) == before, seed
    verify(dataset)
