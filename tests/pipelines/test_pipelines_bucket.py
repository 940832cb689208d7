"""Sources in a bucket, listed by Google's own client from an object store on this machine."""

import http.server
import json
import pathlib
import threading
import urllib.parse

import google_crc32c
import pytest

from pipelines.bucket import bucket_digest, mounted
from trainer.base.errors import UserError


@pytest.fixture
def bucket(monkeypatch) -> dict[str, bytes]:
    """Contents of the objects of `gs://bucket` by name; change them at will."""
    objects: dict[str, bytes] = {}

    class Store(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            (prefix,) = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("prefix", [""])
            items = [
                {"name": name, "size": str(len(content)), "crc32c": str(google_crc32c.value(content))}
                for name, content in objects.items()
                if name.startswith(prefix)
            ]
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"kind": "storage#objects", "items": items}).encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
    yield objects
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "source", ["gs://bucket", "gs://bucket/", "gs://bucket/data", "gs://bucket/data/", "gs://bucket/data/a.csv"]
)
def test_a_folder_a_file_and_a_whole_bucket_are_sources(bucket, source):
    bucket |= {"data/a.csv": b"1", "data-old/a.csv": b"2", "data/a.csv.bak": b"3"}
    before = bucket_digest([source])
    assert bucket_digest([source]) == before
    bucket["data/a.csv"] = b"changed"
    assert bucket_digest([source]) != before
    name = source.removeprefix("gs://bucket").strip("/")
    changed = bucket_digest([source])
    for other, content in (("data-old/a.csv", b"9"), ("data/a.csv.bak", b"9")):
        bucket[other] = content
        inside = pathlib.PurePath(other).is_relative_to(name)
        assert (bucket_digest([source]) != changed) == inside, other
        changed = bucket_digest([source])
    assert mounted(source).rstrip("/") == f"/gcs/bucket/{name}".rstrip("/")


def test_several_sources_are_one_digest_of_all_in_their_order(bucket):
    bucket |= {"a.csv": b"1", "b.csv": b"2"}
    one, other = "gs://bucket/a.csv", "gs://bucket/b.csv"
    digests = {bucket_digest(sources) for sources in ([one], [other], [one, other], [other, one])}
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("gs://bucket/nothing", "there is nothing"),
        ("gs://bucket/dat", "there is nothing"),
        ("data", "give gs://BUCKET/DIR"),
    ],
)
def test_what_is_not_there_is_told(bucket, source, message):
    bucket["data/a.csv"] = b"1"
    with pytest.raises(UserError, match=f"--source {source}: .*{message}"):
        bucket_digest(["gs://bucket/data", source])
