"""Sources in a bucket, listed by Google's own client from an object store on this machine."""

import pathlib
from collections.abc import Callable, Iterator

import pytest

from pipelines.vertex.bucket import bucket_digest, decision, mounted, require_bucket
from tests.cloud.front import Front
from tests.cloud.objects import Objects
from tests.cloud.storage import Storage
from trainer.base.errors import UserError


@pytest.fixture
def put(tmp_path, monkeypatch) -> Iterator[Callable[..., None]]:
    """Makes objects of `gs://bucket`, given by name."""
    root = tmp_path / "root"
    (root / "bucket").mkdir(parents=True)

    def put(objects: dict[str, bytes]) -> None:
        for name, content in objects.items():
            path = root / "bucket" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    with Front(0, Storage(Objects(root)).answer) as front:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{front.server_port}")
        yield put
        front.shutdown()


def test_what_a_run_came_to_lies_beside_its_training(put):
    put({"job/evaluation.json": b'{"decision": {"verdict": "reject", "why": "bad"}}'})
    assert decision("gs://bucket/job") == {"verdict": "reject", "why": "bad"}
    with pytest.raises(UserError, match=r"gs://bucket/other cannot be read: 404 .*other/evaluation\.json"):
        decision("gs://bucket/other")


def test_a_bucket_that_is_not_there_is_not_made(put):
    require_bucket("gs://bucket/runs")
    with pytest.raises(UserError, match="no bucket bukcet; make it: gcloud storage buckets create"):
        require_bucket("gs://bukcet/runs")


@pytest.mark.parametrize(
    "source", ["gs://bucket", "gs://bucket/", "gs://bucket/data", "gs://bucket/data/", "gs://bucket/data/a.csv"]
)
def test_a_folder_a_file_and_a_whole_bucket_are_sources(put, source):
    put({"data/a.csv": b"1", "data-old/a.csv": b"2", "data/a.csv.bak": b"3"})
    before = bucket_digest([source])
    assert bucket_digest([source]) == before
    put({"data/a.csv": b"changed"})
    assert bucket_digest([source]) != before
    name = source.removeprefix("gs://bucket").strip("/")
    changed = bucket_digest([source])
    for other, content in (("data-old/a.csv", b"9"), ("data/a.csv.bak", b"9")):
        put({other: content})
        inside = pathlib.PurePath(other).is_relative_to(name)
        assert (bucket_digest([source]) != changed) == inside, other
        changed = bucket_digest([source])
    assert mounted(source).rstrip("/") == f"/gcs/bucket/{name}".rstrip("/")


def test_several_sources_are_one_digest_of_all_in_their_order(put):
    put({"a.csv": b"1", "b.csv": b"2"})
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
def test_what_is_not_there_is_told(put, source, message):
    put({"data/a.csv": b"1"})
    with pytest.raises(UserError, match=f"--source {source}: .*{message}"):
        bucket_digest(["gs://bucket/data", source])
