"""What is in a bucket, read and written by Google's own client in an object store on this machine."""

from collections.abc import Callable, Iterator

import pytest

from common.errors import UserError
from pipelines.vertex.bucket import like, newest_step, reached, write_json
from tests.cloud.front import Front
from tests.cloud.objects import Objects
from tests.cloud.storage import Storage


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


def test_what_a_training_is_expected_to_take_is_what_the_newest_like_it_took(put):
    asked = {"cluster": "c", "trainer_args": ["a"], "convert_args": [], "name": "n"}
    assert like("gs://bucket", asked) is None
    for day, values, seconds in ((1, asked, 10), (2, asked, 20), (3, {**asked, "cluster": "d"}, 30), (4, asked, None)):
        write_json(
            f"gs://bucket/runs/training-{day}/run.json", {"job": {"parameter_values": {**values, "run_id": day}}}
        )
        if seconds:
            write_json(f"gs://bucket/runs/training-{day}/job/DONE.json", {"seconds": seconds})
    assert like("gs://bucket", asked) == ("training-2", 20)


def test_progress_is_the_newest_whole_line_of_the_newest_journal(put):
    line = '{"event": "%s", "step": %d, "time": 1.0}\n'
    assert newest_step("gs://bucket/job") == {}
    put({"job/journal-chief-0-0.jsonl": (line % ("step", 5)).encode() * 3000, "job/journal-worker-0-0.jsonl": b"x"})
    assert newest_step("gs://bucket/job")["step"] == 5
    put({"job/journal-chief-0-1.jsonl": (line % ("step", 7) + line % ("usage", 9) + '{"event": "step", "st').encode()})
    assert newest_step("gs://bucket/job")["step"] == 7


def test_a_place_that_is_in_no_bucket_is_refused():
    for place in ("data", "gs:///data", "s3://bucket/data"):
        with pytest.raises(UserError, match=f"--source {place}: .*give gs://BUCKET/DIR"):
            reached(place)
    assert reached("gs://bucket/data/") == "gs://bucket/data"
