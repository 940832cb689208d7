import os
import pathlib
import shutil

import pytest
from small_sources import make

from components.convert.sources.registry import source_digest

PLACES = [
    ("mnist", "train-labels-idx1-ubyte", "train-labels.idx1-ubyte"),
    ("cifar10", "data_batch_3.bin", None),
    ("images", "lily/3.png", "rose/-.png"),
    ("csv", "b.csv", None),
    ("tfrecord", "more/b.tfrecord", "more/b_val.tfrecord"),
]


@pytest.mark.parametrize(("dataset", "place", "renamed"), PLACES)
def test_digest_follows_contents_names_and_schema(tmp_path, dataset, place, renamed):
    flags, path = make(dataset, place, tmp_path)
    root = pathlib.Path(flags["source"])

    def digest(source: pathlib.Path = root) -> str:
        return source_digest(dataset, str(source), flags.get("schema"))

    digests = [digest()]
    shutil.copytree(root, tmp_path / "elsewhere")
    (root / "_notes.txt").write_text("not part of the source")
    assert digest() == digest(tmp_path / "elsewhere") == digests[0] and len(digests[0]) == 64
    if renamed:
        path = path.rename(root / renamed)
        digests.append(digest())
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    digests.append(digest())
    if "schema" in flags:
        with open(flags["schema"], "a") as file:
            file.write("missing: ['']\n")
        digests.append(digest())
    assert len({*digests}) == len(digests)


@pytest.mark.parametrize(("dataset", "place"), [place[:2] for place in PLACES])
def test_digest_of_bucket_reads_no_file(tmp_path, bucket, bytes_read, dataset, place):
    flags, path = make(dataset, place, tmp_path)
    for name in ("one", "two"):
        shutil.copytree(flags["source"], bucket / name)

    def digest(name: str) -> str:
        return source_digest(dataset, f"gs://demo/{name}", flags.get("schema"))

    num_bytes, before = bytes_read(), digest("one")
    assert digest("two") == before
    (bucket / "one" / place).write_bytes(path.read_bytes()[:-1] + b"?")
    assert digest("one") != before
    schema_bytes = os.path.getsize(flags["schema"]) if "schema" in flags else 0
    assert bytes_read() - num_bytes == 3 * schema_bytes
