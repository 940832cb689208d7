"""What holds for a registry in a directory and on Vertex AI alike."""

import json
import shutil

import pytest

from common.errors import UserError
from components.register.__main__ import main
from components.register.register import open_registry
from tests.cloud.conftest import IMAGE


@pytest.fixture(params=["directory", "vertex"])
def place(request, tmp_path):
    return str(tmp_path / "registry") if request.param == "directory" else request.getfixturevalue("vertex_place")


@pytest.fixture
def say(place, capsys):
    """Runs a verb; returns what it prints."""

    def run(verb, *words):
        assert main([verb, "--registry", place, "--name", "m", *map(str, words)]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def add(evaluated, say, place, request):
    """Evaluates and adds a model that was compared with a champion of an accuracy; returns what is printed."""

    def run(name, accuracy, champion=None, beaten=0.0, flags=(), **more):
        if champion:
            champion = {"version": champion, "metrics": {"accuracy": beaten}, "incomparable": ""}
        directory, _ = evaluated(name, accuracy, champion=champion, **more)
        model = directory / "model"
        if place.startswith("vertex"):
            model = request.getfixturevalue("uploaded")(model, name)
        about = ["--model-dir", model, "--evaluation", directory / "evaluation.json", "--run", name, "--image", IMAGE]
        return say("add", *about, *flags)

    return run


@pytest.fixture
def three(add):
    """Version 2 is the champion, 1 the previous one, 3 was not better."""
    add("a", 0.8, settings={"learning_rate": 0.1, "seed": 0})
    add("b", 0.9, "1", 0.8, settings={"learning_rate": 0.01, "seed": 0})
    return add("c", 0.85, "2", 0.9)


@pytest.mark.parametrize("verb", ["promote", "delete", "show"])
def test_the_flag_of_another_command_is_no_version(tmp_path, refused, verb):
    """It printed the version of the code, as if all had been done."""
    flags = ("--registry", tmp_path, "--name", "m", "--version", 9)
    assert "unrecognized arguments: --version" in refused(main, verb, *flags)


def test_every_verb(say, three, place, refused, capsys):
    assert "version 3" in three and "m: not promoted: " in three
    rows = [line.split() for line in say("list").splitlines()]
    assert [(row[0], row[3], row[4]) for row in rows[1:]] == [
        ("1", "accuracy", "0.8000"),
        ("2", "accuracy", "0.9000"),
        ("3", "accuracy", "0.8500"),
    ]
    assert "previous" in rows[1] and "champion" in " ".join(rows[2])
    assert main(["list", "--registry", place]) == 0
    assert capsys.readouterr().out.split() == ["model", "versions", "champion", "m", "3", "2"]
    shown = json.loads(say("show"))
    assert (shown["version"], shown["run"], shown["metrics"]["accuracy"]) == ("2", "b", 0.9)
    assert shown["settings"] == {"learning_rate": 0.01, "seed": 0} and shown["has_files"]
    assert {"registered", "by", "code_version", "fingerprint", "split", "decision"} <= shown.keys()
    assert "champion" in shown["aliases"]

    assert say("rollback") == "m: version 1 is the champion again\n"
    assert say("promote", 3, "--why", "of the colour") == "m: version 3 is the champion now\n"
    assert say("promote", 2) == "m: version 2 is the champion now\n"
    for version, held in (("2", "champion"), ("3", "previous")):
        assert held in refused(main, "delete", "--registry", place, "--name", "m", version)
    assert say("delete", 1) == "m: version 1 is deleted\n"
    assert open_registry(place).versions("m") == ["2", "3"]
    assert "unknown version of model 'm' '1'" in refused(main, "promote", "--registry", place, "--name", "m", "1")
    assert "unknown model 'n' (known: m)" in refused(main, "show", "--registry", place, "--name", "n")

    told = say("history")
    assert "  run b: accuracy 0.9000 reaches " in told and " of the colour" in told
    first = [["add", "1"], ["promote", "1"], ["add", "2"], ["promote", "2"], ["add", "3"]]
    history = [*first, ["rollback", "1"], ["promote", "3"], ["promote", "2"], ["delete", "1"]]
    if place.startswith("vertex"):  # which keeps nothing of a version that is deleted
        history = [event for event in history if event[1] != "1"]
    assert [line.split()[2:4] for line in told.splitlines()[1:]] == history


def test_a_name_is_for_one_kind_of_data(three, add, place, refused, evaluated):
    wide = {"image": "uint8[28, 28, 1]"}
    directory, _ = evaluated("wide", 0.99, features=wide)
    words = ["--model-dir", directory / "model", "--evaluation", directory / "evaluation.json"]
    line = refused(main, "add", "--registry", place, "--name", "m", *words)
    assert (
        "features {'image': 'uint8[28, 28, 1]'} and not {'image': 'uint8[8, 8, 1]'}" in line and "--new-schema" in line
    )
    assert open_registry(place).versions("m") == ["1", "2", "3"]
    assert "registered version 4" in add("other", 0.99, "2", 0.9, features=wide, flags=["--new-schema"])
    assert "registered version 5" in add("another", 0.5, "4", 0.99, features=wide)


def test_versions_whose_files_are_gone_are_told_and_passed_over(three, say, add, place, tmp_path, refused):
    store = open_registry(place)

    def lose(version):
        shutil.rmtree(store.model_dir("m", version).replace("gs:/", f"{tmp_path}/buckets"))

    lose("2")
    assert store.effective_champion("m") == (
        "1",
        "the files of version 2, the champion, are gone, and it is passed over; version 1 stands in",
    )
    assert "its files are gone" in say("list") and store.aliases("m").get("champion") == "2"
    assert not json.loads(say("show", 2))["has_files"]
    assert "the files of version 2" in refused(main, "promote", "--registry", place, "--name", "m", "2")
    assert "version 4 is the champion now, version 1 the previous one" in add("d", 0.87, "1", 0.8)
    assert store.aliases("m")["previous"] == "1"
    lose("4")
    lose("1")
    version, told = store.effective_champion("m")
    assert version == "3" and "version 4, the champion" in told and "version 1, the previous champion" in told
    with pytest.raises(UserError, match=r"the files of version 1 .* are gone"):
        store.rollback("m")
    assert "not promoted" in add("e", 0.84, "3", 0.85)
    assert store.effective_champion("m", exclude="5")[0] == "3" and store.effective_champion("m")[0] == "5"
    lose("3")
    lose("5")
    assert "version 6 is the champion now" in add("f", 0.5)
    assert not store.has_files("m", "4")
