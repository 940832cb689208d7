from __future__ import annotations

import dataclasses
import json

import pytest

from trainer.errors import UserError
from trainer.manifest import FILE, Manifest


def test_what_was_saved_is_loaded(digits, tmp_path):
    manifest = Manifest.load(digits)
    manifest.save(tmp_path)
    assert Manifest.load(tmp_path) == manifest
    assert sorted(p.name for p in tmp_path.iterdir()) == [FILE]


def test_the_fingerprint_follows_the_content(digits):
    manifest = Manifest.load(digits)
    assert dataclasses.replace(manifest, name="other").fingerprint != manifest.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["splits"]["train"].update(examples=9), "edited"),
        (lambda m: m.pop("label"), "not a dataset manifest"),
        (lambda m: m.update(format_version=99), "format version 99; this program reads 1"),
        (lambda m: m.pop("fingerprint"), "edited"),
    ],
)
def test_an_edited_manifest_is_refused(digits, tmp_path, change, message):
    raw = json.loads((digits / FILE).read_text())
    change(raw)
    (tmp_path / FILE).write_text(json.dumps(raw))
    with pytest.raises(UserError, match=message):
        Manifest.load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_what_is_no_manifest_is_refused(tmp_path, text):
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
