"""Errors of the user, and those of a store, which are nobody's mistake and are tried again."""

import pytest

from common.errors import UserError, about, readable, unknown, writable
from common.google_cloud import RefusedError
from common.storage.storage import FileChangedError
from trainer.data import shards

CONNECTION = [ConnectionError, *ConnectionError.__subclasses__()]
SYSTEM = [OSError, FileNotFoundError, PermissionError, IsADirectoryError, TimeoutError]


@pytest.mark.parametrize("context", [readable, writable, shards.readable])
@pytest.mark.parametrize("error", [*CONNECTION, *SYSTEM])
def test_failing_store_is_no_user_error(context, error):
    with pytest.raises(error if error in CONNECTION else UserError), context("gs://bucket/a"):
        raise error("it is so")


@pytest.mark.parametrize("error", [UserError, RefusedError, FileChangedError])
def test_named_error_keeps_its_type(error):
    with pytest.raises(error) as raised, about("row 7"):
        raise error("gs://bucket/a")
    assert type(raised.value) is error and str(raised.value).startswith("row 7: gs://bucket/a")


def test_long_unknown_name_is_cut():
    error = str(unknown("column", "a" * 9999, ["fare"]))
    assert error.startswith("unknown column 'aaa") and len(error) < 200
