import pytest

from common import provenance
from common.errors import UserError
from common.provenance import RECORDS
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
        with pytest.raises(UserError, match=f"{name} cannot be used .*; put the right one back"):
            read()


@pytest.mark.parametrize("where", ["here", "in a store"])
def test_job_dir_keeps_first_start(tmp_path, store, where):
    directory = (tmp_path if where == "here" else store) / "job"
    job, facts = str(directory), {"seed": 0, "fingerprint": "a"}
    directory.mkdir()
    identity.check(job, {"seed": 1})  # a new one is for anything

    def begin(horizon_steps: int, write: bool) -> int:
        record = {"identity": facts, "settings": {}, "horizon_steps": horizon_steps}
        return identity.begin(job, record, write=write)["horizon_steps"]

    assert begin(7, write=False) == 7
    assert identity.first_start(job) == {}
    assert begin(8, write=True) == begin(9, write=True) == 8
    with pytest.raises(UserError, match=r"fingerprint: 'a' -> 'b'; seed: 0 -> 1"):
        identity.check(job, {"seed": 1, "fingerprint": "b"})
    assert done.load(job) is None
    facts = {
        "loss": 0.5,
        "accuracy": 0.25,
        "validation": {},
        "seconds": 1.5,
        "examples_per_s": 10.0,
    }
    record = done.Done(step=3, epochs=0.5, **facts)
    record.save(job)
    assert done.load(job) == record
