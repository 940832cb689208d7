import os
import pathlib
import shutil

import kinds
import pytest

from components.convert.sources.registry import source_digest

PLACES = {
    "idx": "train-labels-idx1-ubyte",
    "images": "a/2.png",
    "csv": "b.csv",
    "tfrecord": "b.tfrecord",
}


@pytest.mark.parametrize("kind", PLACES)
def test_digest_follows_contents_names_and_schema(tmp_path, kind):
    flags = kinds.make(kind, tmp_path)
    source = tmp_path / "source"

    def digest(folder: pathlib.Path = source) -> str:
        return source_digest(kind, str(folder), flags.get("schema"))

    digests = [digest()]
    shutil.copytree(source, tmp_path / "elsewhere")
    (source / "_notes.txt").write_text("not part of the source")
    assert digest() == digest(tmp_path / "elsewhere") == digests[0]
    path = source / PLACES[kind]
    if kind != "idx":
        path = path.rename(path.with_stem("other"))
        digests.append(digest())
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    digests.append(digest())
    if "schema" in flags:
        with open(flags["schema"], "a") as file:
            file.write("# more\n")
        digests.append(digest())
    assert len({*digests}) == len(digests)


@pytest.mark.parametrize("kind", PLACES)
def test_digest_of_bucket_reads_no_file(tmp_path, bucket, bytes_read, kind):
    flags = kinds.make(kind, tmp_path)
    for name in ("one", "two"):
        shutil.copytree(tmp_path / "source", bucket / name)

    def digest(name: str) -> str:
        return source_digest(kind, f"gs://demo/{name}", flags.get("schema"))

    num_bytes, before = bytes_read(), digest("one")
    assert digest("two") == before
    path = bucket / "one" / PLACES[kind]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert digest("one") != before
    schema_bytes = os.path.getsize(flags["schema"]) if "schema" in flags else 0
    assert bytes_read() - num_bytes == 3 * schema_bytes
