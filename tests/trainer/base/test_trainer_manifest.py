import dataclasses
import json

import pytest

from trainer.base.errors import UserError
from trainer.base.feature_summary import Summary
from trainer.base.manifest import FILE, MULTI_LABEL, REGRESSION, Encoding, Feature, Manifest, Shard, Split


def test_what_was_saved_is_loaded(digits, tmp_path):
    manifest = Manifest.load(digits)
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest
    assert sorted(p.name for p in tmp_path.iterdir()) == [FILE]


TABLE = Manifest(
    name="trips",
    origin="made up",
    features=(
        Feature(name="company", dtype="string", default="", statistics=Summary(missing=2)),
        Feature(name="label", dtype="int64", value_range=(0.0, 1.0), offset=40, num_bytes=1),
        Feature(
            name="seconds",
            dtype="int64",
            offset=60,
            num_bytes=10,
            unit="s",
            default=-1,
            statistics=Summary(missing=0, mean=2.5, std=0.0, min=-(2**62), max=2**62),
        ),
        Feature(name="tips", dtype="float32", offset=80, num_bytes=4, statistics=Summary(missing=0)),
    ),
    label="label",
    class_names=("no tip", "tip"),
    record_bytes=None,
    splits={
        "train": Split(
            examples=1,
            class_histogram=(1, 0),
            shards=(
                Shard(
                    file="a",
                    examples=1,
                    bytes=99,
                    crc32c="f",
                    head_crc32c="d",
                    hashes="h",
                    hashes_crc32c="c",
                    index="b",
                    index_crc32c="e",
                ),
            ),
        )
    },
    arguments={"dataset": "trips", "schema": {"wide": [], "default": None}},
    wide=(
        Encoding(kind="buckets", columns=("seconds",), boundaries=(1.0, 2.0)),
        Encoding(kind="cross", columns=("company", "seconds"), hash_buckets=10_000),
    ),
    deep=(
        Encoding(kind="numeric", columns=("seconds",)),
        Encoding(kind="vocabulary", columns=("company",), vocabulary=("Blue", ""), embedding=3),
        Encoding(kind="vocabulary", columns=("seconds",), vocabulary=()),
        Encoding(kind="hash", columns=("company",), hash_buckets=100, embedding=10),
    ),
)


def test_a_table_keeps_all_that_a_model_needs(tmp_path):
    TABLE.save(tmp_path)
    assert Manifest.load(tmp_path) == TABLE
    assert [feature.name for feature in TABLE.inputs] == ["company", "seconds"]
    assert [encoding.categories for encoding in (*TABLE.wide, *TABLE.deep)] == [3, 10_000, None, 3, 1, 100]


def test_the_task_is_kept_and_classification_goes_without_saying(tmp_path):
    assert not {"task", "targets"} & json.loads(TABLE.dump()).keys()
    targets = dataclasses.replace(TABLE, task=MULTI_LABEL, class_names=(), targets=("wet", "windy"))
    targets.save(tmp_path)
    assert Manifest.load(tmp_path) == targets
    assert len({targets.fingerprint, TABLE.fingerprint, dataclasses.replace(targets, task=REGRESSION).fingerprint}) == 3


EDITED, NONE = "the file was edited", "not a dataset manifest"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["deep"][1]["vocabulary"].reverse(), EDITED),
        (lambda m: m["features"][2].pop("unit"), EDITED),
        (lambda m: m["splits"]["train"]["shards"][0].update(index_crc32c="f"), EDITED),
        (lambda m: m.pop("fingerprint"), EDITED),
        (lambda m: m.pop("deep"), NONE),
        (lambda m: m["deep"][0].update(unknown=1), NONE),
        (lambda m: m["features"][2]["statistics"].update(unknown=1), NONE),
        (lambda m: m["features"].append("fare"), NONE),
        (lambda m: m.update(format_version=99), "format version 99; this program reads 2; convert again"),
    ],
)
def test_what_was_edited_or_is_no_manifest_is_refused(tmp_path, change, message):
    raw = json.loads(TABLE.dump())
    change(raw)
    (tmp_path / FILE).write_text(json.dumps(raw))
    with pytest.raises(UserError, match=message):
        Manifest.load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_what_is_no_object_is_refused(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UserError, match=FILE):
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
