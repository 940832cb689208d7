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
