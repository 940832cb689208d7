import dataclasses
import json

import pytest

from common.manifest import FILE, REGRESSION, Manifest
from tests.errors import user_error


def test_manifest_is_loaded_as_saved(digits, table, tmp_path):
    seconds = table.feature("seconds")
    extreme = dataclasses.replace(seconds.statistics, min=-(2**62), max=2**62)
    features = (*table.features[1:], dataclasses.replace(seconds, statistics=extreme))
    targets = {"task": REGRESSION, "class_names": (), "targets": ("wet", "windy")}
    numbers = dataclasses.replace(table, features=features, **targets)
    manifests = Manifest.load(digits), table, numbers
    for manifest in manifests:
        manifest.save(tmp_path)
        assert Manifest.load(tmp_path) == manifest
    assert [path.name for path in tmp_path.iterdir()] == [FILE]
    assert len({manifest.fingerprint for manifest in manifests}) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["deep"][3]["vocabulary"].reverse(), "the file was edited"),
        (
            lambda m: m.update(format_version=99),
            "format version 99; this program reads 4; convert again",
        ),
    ],
)
def test_edited_manifest_is_refused(table, tmp_path, change, message):
    raw = json.loads(table.dump())
    change(raw)
    (tmp_path / FILE).write_text(json.dumps(raw))
    with user_error(message):
        Manifest.load(tmp_path)


def test_unfinished_conversion_is_refused(tmp_path):
    with user_error(r"no manifest.json.*components.convert"):
        Manifest.load(tmp_path)
