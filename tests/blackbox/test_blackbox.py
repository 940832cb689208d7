"""Commands do what they did before: a change of the structure inside shows here if users would notice it."""

import json
import pathlib

import pytest

from tests.blackbox.__main__ import EXPECTED, ROOT
from tests.blackbox.scenarios import SCENARIOS, Checkout

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> pathlib.Path:
    """Returns the directory in which the scenarios share their datasets."""
    return tmp_path_factory.mktemp("blackbox")


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "trained_weights"])
def test_commands_do_what_they_did(work, name):
    observed = SCENARIOS[name](Checkout(root=ROOT, work=work))
    assert json.loads(json.dumps(observed)) == json.loads(EXPECTED.read_text())[name]
