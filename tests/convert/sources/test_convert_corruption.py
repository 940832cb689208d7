"""A file of a dataset that has changed is named, whatever has happened to it."""

import pathlib
import random
import re

import pytest
import trips
from dataset_files import convert_to, read_folder, write_files

from common.errors import UserError
from common.manifest import FILE, Manifest
from components.convert import output
from trainer.data import records, shards
from trainer.data.placement import Choice, provide_files


@pytest.fixture(scope="module", params=["images", "rows with an index"])
def dataset(request, tmp_path_factory) -> pathlib.Path:
    root = tmp_path_factory.mktemp("dataset")
    source = {} if request.param == "images" else trips.write(root, trips.rows(300))
    convert_to(root / "out", **source, shards=5)
    return root / "out"


def damage(directory: pathlib.Path, kind: str, chance: random.Random) -> list[pathlib.Path]:
    """Damages a dataset; returns files, of which one has to be named."""
    # Reading in order takes no other index.
    paths = sorted(
        p for p in directory.iterdir() if re.search("tfrecord|hashes|train.*index", p.name)
    )
    path = directory / FILE if kind in ("edit", "scribble") else chance.choice(paths)
    data = path.read_bytes()
    place = chance.randrange(len(data))
    if kind in ("flip", "scribble"):
        changed = bytes([data[place] ^ chance.randrange(1, 256)])
        path.write_bytes(data[:place] + changed + data[place + 1 :])
    elif kind == "resize":
        path.write_bytes(chance.choice([b"", data[:place], data[:-1], data + b"\0", data * 2]))
    elif kind == "swap":
        other = chance.choice([p for p in paths if p.suffix == path.suffix and p != path])
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
        return [path, other]
    elif kind == "delete":
        path.unlink()
    else:  # A value of the manifest, or a name in it, is another one.
        text = data.decode()
        values = re.finditer(r'"[^"]*"|(?<=[ \[])-?[\d.]+|null|true|false', text)
        value = chance.choice([*values])
        news = ["null", "0", "-1", "1.5", '"x"', "[]", "{}", "[1]", "true", "1" + 30 * "0"]
        new = '"x"' if text[value.end()] == ":" else chance.choice(news)
        path.write_text(text[: value.start()] + new + text[value.end() :])
    return [path]


def verify(dataset: pathlib.Path) -> None:
    manifest = Manifest.load(dataset)
    for split in manifest.splits:
        shards.verify(manifest, str(dataset), split)


def read(dataset: pathlib.Path) -> None:
    manifest = Manifest.load(dataset)
    provide_files(Choice(str(dataset), "mapped", "as asked for", None), manifest)
    for split, content in manifest.splits.items():
        batches = records.batches(manifest, str(dataset), split, 100)
        assert sum(len(batch["label"]) for batch in batches) == content.examples
        hashes = shards.content_hashes(manifest, str(dataset), split)
        assert sum(map(len, hashes)) == content.examples


def compare(dataset: pathlib.Path) -> None:
    output.verify(str(dataset), Manifest.load(dataset))


KINDS = {"flip": 7, "resize": 9, "swap": 3, "delete": 3, "edit": 12, "scribble": 4}


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_is_named(dataset, kind):
    manifest, files = Manifest.load(dataset), read_folder(dataset)
    for seed in range(KINDS[kind]):
        paths = damage(dataset, kind, random.Random(seed))
        for check in (verify, read, compare):
            try:
                check(dataset)
            except UserError as error:
                assert any(str(path) in str(error) for path in paths), seed
            else:  # 1e5 and 1E5 are the same.
                assert paths == [dataset / FILE] and Manifest.load(dataset) == manifest, seed
        write_files(dataset, files)
