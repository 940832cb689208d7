"""Expectation of an error for a mistake of the user."""

import contextlib

import pytest

from common.errors import UserError


@contextlib.contextmanager
def user_error(match=None):
    """Sees a `UserError` of one line that matches a regular expression."""
    with pytest.raises(UserError, match=match) as caught:
        yield caught
    assert "\n" not in str(caught.value)
