import pytest

from common.errors import UserError
from pipelines.vertex.submission import require_bucket
from pipelines.vertex.watch import newest_step


def test_newest_step_is_of_newest_journal(bucket):
    line = '{"event": "%s", "step": %d, "time": 1.0}\n'
    assert newest_step("gs://demo/job") == {}
    (bucket / "job").mkdir()
    (bucket / "job" / "journal-chief-0-0.jsonl").write_text(line % ("step", 5) * 3000)
    assert newest_step("gs://demo/job")["step"] == 5
    text = line % ("step", 7) + line % ("usage", 9) + '{"event": "step", "st'
    (bucket / "job" / "journal-chief-0-1.jsonl").write_text(text)
    assert newest_step("gs://demo/job")["step"] == 7


@pytest.mark.parametrize("place", ["data", "gs:///data", "s3://bucket/data"])
def test_source_outside_buckets_is_refused(place):
    with pytest.raises(UserError, match=f"--source {place}: .*give gs://BUCKET/DIR"):
        require_bucket(place)
