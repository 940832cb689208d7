import os
import shutil

import pytest
from small_sources import make

from components.convert.sources.registry import source_digest

PLACES = [
    ("mnist", "train-labels-idx1-ubyte"),
    ("cifar10", "data_batch_3.bin"),
    ("images", "lily/3.png"),
    ("csv", "b.csv"),
    ("tfrecord", "more/b.tfrecord"),
]


@pytest.mark.parametrize(("dataset", "place"), PLACES)
def test_digest_follows_contents_names_and_schema(tmp_path, dataset, place):
    flags, path = make(dataset, place, tmp_path)
    source = tmp_path / "source"

    def digest(folder=source) -> str:
        return source_digest(dataset, str(folder), flags.get("schema"))

    digests = [digest()]
    shutil.copytree(source, tmp_path / "elsewhere")
    (source / "_notes.txt").write_text("not part of the source")
    assert digest() == digest(tmp_path / "elsewhere") == digests[0]
    if dataset in ("images", "tfrecord"):
        path = path.rename(path.with_stem("test"))
        digests.append(digest())
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    digests.append(digest())
    if "schema" in flags:
        with open(flags["schema"], "a") as file:
            file.write("missing: ['']\n")
        digests.append(digest())
    assert len({*digests}) == len(digests)


@pytest.mark.parametrize(("dataset", "place"), PLACES)
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
