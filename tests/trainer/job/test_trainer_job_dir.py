import pytest

from common import provenance
from common.provenance import RECORDS
from tests.errors import user_error
from trainer.job import done, identity


@pytest.mark.parametrize("content", ["", "null", "{}", '{"identity": 3}'])
def test_unusable_file_is_named(tmp_path, content):
    for name, read in (
        (identity.FILE, lambda: identity.check(str(tmp_path), {})),
        (done.FILE, lambda: done.load(str(tmp_path))),
        (f"assets.extra/{RECORDS}", lambda: provenance.records_of(str(tmp_path))),
        ("assets.extra/dataset.json", lambda: provenance.trained_on(str(tmp_path))),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
        with user_error(f"{name} cannot be used .*; put the right one back"):
            read()


@pytest.mark.parametrize("where", ["here", "in a store"])
def test_job_dir_keeps_first_start(tmp_path, store, where):
    job = str(tmp_path if where == "here" else store)
    identity.check(job, {"seed": 1})  # a new one is for anything
    record = {"identity": {"seed": 0, "fingerprint": "a"}, "settings": {}, "horizon_steps": 7}
    assert identity.begin(job, record, write=False) == record
    assert identity.first_start(job) == {}
    for horizon in (7, 8):
        begun = identity.begin(job, {**record, "horizon_steps": horizon}, write=True)
        assert begun["horizon_steps"] == 7
    with user_error(r"fingerprint: 'a' -> 'b'; seed: 0 -> 1"):
        identity.check(job, {"seed": 1, "fingerprint": "b"})
    assert done.load(job) is None
    facts = {"loss": 0.5, "validation": {}, "seconds": 1.5, "examples_per_s": 10.0}
    ended = done.Done(step=3, epochs=0.5, **facts)
    ended.save(job)
    assert done.load(job) == ended
