"""A name that is no text, as old archives have them, is a name all the same; only a class needs a name that can be written."""

import os
import sys

import pytest
from small_sources import make

from common.cli import set_up_output
from common.errors import UserError
from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.registry import source_digest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="file systems of others take no such names"
)
ODD = os.fsdecode(b"caf\xe9\n\x80")


@pytest.mark.parametrize(
    ("dataset", "place"),
    [
        ("mnist", ""),
        ("images", "rose/2.png"),
        ("csv", "b.csv"),
        ("csv", "schema.yaml"),
        ("tfrecord", "a.tfrecord"),
    ],
)
def test_file_may_have_any_name(tmp_path, dataset, place):
    manifests = []
    for name in (ODD, "plain"):
        flags, path = make(dataset, place, tmp_path / name)
        renamed = path.rename(path.with_name(name + path.suffix))
        flags = {key: str(renamed) if value == str(path) else value for key, value in flags.items()}
        set_up_output()
        manifests.append(convert(Options(**flags, output=str(tmp_path / name / "out"), shards=1)))
        assert source_digest(flags["dataset"], flags["source"], flags.get("schema"))
    assert (
        place == "rose/2.png" or manifests[0] == manifests[1]
    )  # The order of images is that of their names.


def test_class_that_is_no_text_is_refused(tmp_path):
    flags, path = make("images", "lily", tmp_path)
    path.rename(path.with_name(ODD))
    with pytest.raises(UserError, match=r"\\udce9.*is not UTF-8; rename that folder") as error:
        convert(Options(**flags, output=str(tmp_path / "out")))
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()
