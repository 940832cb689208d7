import pathlib
import shutil

import kinds
import pytest

from components.convert.sources.registry import find_source

PLACES = {
    "idx": "train-labels-idx1-ubyte",
    "images": "a/2.png",
    "csv": "b.csv",
}


@pytest.mark.parametrize("place", ["here", "bucket"])
@pytest.mark.parametrize("kind", PLACES)
def test_digest_follows_contents_names_and_schema(tmp_path, bucket, bytes_read, kind, place):
    flags = kinds.make(kind, tmp_path)
    source = shutil.copytree(tmp_path / "source", bucket / "source")
    shutil.copytree(source, bucket / "copy")

    def digest(name="source"):
        path = f"{'gs://demo' if place == 'bucket' else bucket}/{name}"
        return find_source(kind, path, schema=flags.get("schema")).digest(path)

    num_bytes, digests = bytes_read(), [digest()]
    (source / "_notes.txt").write_text("not part of the source")
    assert digest() == digest("copy") == digests[0]
    path = source / PLACES[kind]
    if kind != "idx":
        path = path.rename(path.with_stem("other"))
        digests.append(digest())
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    digests.append(digest())
    if schema := flags.get("schema"):
        pathlib.Path(schema).write_text(f"{pathlib.Path(schema).read_text()}# more")
        digests.append(digest())
    elif place == "bucket":
        assert bytes_read() == num_bytes  # The store knows the checksums.
    assert len({*digests}) == len(digests)
