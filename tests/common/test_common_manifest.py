import dataclasses
import json

import pytest

from common.errors import UserError
from common.manifest import FILE, MULTI_LABEL, REGRESSION, Manifest


def test_manifest_is_loaded_as_saved(digits, tmp_path):
    manifest = Manifest.load(digits)
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest
    assert sorted(p.name for p in tmp_path.iterdir()) == [FILE]


def test_table_keeps_what_models_need(table, tmp_path):
    seconds = table.feature("seconds")
    wide = dataclasses.replace(seconds.statistics, min=-(2**62), max=2**62)
    features = {f.name: f for f in table.features}
    features["seconds"] = dataclasses.replace(seconds, statistics=wide)
    extreme = dataclasses.replace(table, features=tuple(features.values()))
    extreme.save(tmp_path)
    assert Manifest.load(tmp_path) == extreme != table


def test_task_is_kept(table, tmp_path):
    targets = dataclasses.replace(table, task=MULTI_LABEL, class_names=(), targets=("wet", "windy"))
    targets.save(tmp_path)
    assert Manifest.load(tmp_path) == targets
    numbers = dataclasses.replace(targets, task=REGRESSION)
    assert len({each.fingerprint for each in (table, targets, numbers)}) == 3


EDITED, NONE = "the file was edited", "cannot be used .*; convert the dataset again"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["deep"][3]["vocabulary"].reverse(), EDITED),
        (lambda m: m["splits"]["train"]["shards"][0].update(index_crc32c="f"), EDITED),
        (lambda m: m.pop("fingerprint"), EDITED),
        (lambda m: m["deep"][0].update(kind=1), NONE),
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
    with pytest.raises(UserError, match=message):
        Manifest.load(tmp_path)


def test_unfinished_conversion_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no manifest.json.*components.convert"):
        Manifest.load(tmp_path)


def test_missing_part_is_named(digits):
    manifest = Manifest.load(digits)
    with pytest.raises(UserError, match=r"no feature 'pixel'.*image, label"):
        manifest.feature("pixel")
    with pytest.raises(UserError, match=r"split 'tset'.*test, train, validation"):
        manifest.split("tset")
