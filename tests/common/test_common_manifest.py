import dataclasses
import json

import pytest

from common.errors import UserError
from common.manifest import FILE, MULTI_LABEL, REGRESSION, Manifest


def test_what_was_saved_is_loaded(digits, tmp_path):
    manifest = Manifest.load(digits)
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest
    assert sorted(p.name for p in tmp_path.iterdir()) == [FILE]


def test_a_table_keeps_all_that_a_model_needs(table, tmp_path):
    seconds = table.feature("seconds")
    wide = dataclasses.replace(seconds.statistics, min=-(2**62), max=2**62)
    features = tuple(
        dataclasses.replace(f, statistics=wide) if f == seconds else f for f in table.features
    )
    extreme = dataclasses.replace(table, features=features)
    extreme.save(tmp_path)
    assert Manifest.load(tmp_path) == extreme != table
    assert [feature.name for feature in table.inputs] == [
        "area",
        "company",
        "miles",
        "same",
        "seconds",
        "when",
    ]
    assert [encoding.categories for encoding in table.wide] == [None, 4, 6, 50]
    assert [encoding.categories for encoding in table.deep] == [None, None, None, 4, 7, 6, 3, 5]


def test_the_task_is_kept_and_classification_goes_without_saying(table, tmp_path):
    assert not {"task", "targets"} & json.loads(table.dump()).keys()
    targets = dataclasses.replace(table, task=MULTI_LABEL, class_names=(), targets=("wet", "windy"))
    targets.save(tmp_path)
    assert Manifest.load(tmp_path) == targets
    assert (
        len(
            {
                targets.fingerprint,
                table.fingerprint,
                dataclasses.replace(targets, task=REGRESSION).fingerprint,
            }
        )
        == 3
    )


EDITED, NONE = "the file was edited", "cannot be used .*; convert the dataset again"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["deep"][3]["vocabulary"].reverse(), EDITED),
        (lambda m: m["features"][1].pop("default"), EDITED),
        (lambda m: m["splits"]["train"]["shards"][0].update(index_crc32c="f"), EDITED),
        (lambda m: m.pop("fingerprint"), EDITED),
        (lambda m: m.pop("features"), NONE),
        (lambda m: m["deep"][0].update(kind=1), NONE),
        (
            lambda m: m.update(format_version=99),
            "format version 99; this program reads 4; convert again",
        ),
    ],
)
def test_what_was_edited_or_is_no_manifest_is_refused(table, tmp_path, change, message):
    raw = json.loads(table.dump())
    change(raw)
    (tmp_path / FILE).write_text(json.dumps(raw))
    with pytest.raises(UserError, match=message):
        Manifest.load(tmp_path)


def test_an_unfinished_conversion_is_refused_with_the_repair(tmp_path):
    with pytest.raises(UserError, match=r"no manifest.json.*components.convert"):
        Manifest.load(tmp_path)


def test_what_is_not_there_is_named_with_what_is(digits):
    manifest = Manifest.load(digits)
    with pytest.raises(UserError, match=r"no feature 'pixel'.*image, label"):
        manifest.feature("pixel")
    with pytest.raises(UserError, match=r"split 'tset'.*test, train, validation"):
        manifest.split("tset")
