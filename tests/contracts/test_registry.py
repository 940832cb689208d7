"""Contract of `Registry`, for each implementation."""

import json
import shutil

import pytest

from common.errors import UserError
from components.register.__main__ import main
from components.register.register import open_registry
from tests.cloud.conftest import IMAGE


def numbers(registry):
    return [version.number for version in registry.versions("m")]


@pytest.fixture(params=["directory", "vertex"])
def place(request, tmp_path):
    return (
        str(tmp_path / "registry")
        if request.param == "directory"
        else request.getfixturevalue("vertex_place")
    )


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
        about = [
            "--model-dir",
            model,
            "--evaluation",
            directory / "evaluation.json",
            "--run",
            name,
            "--image",
            IMAGE,
        ]
        return say("add", *about, *flags)

    return run


@pytest.fixture
def three(add):
    """Version 2 is the champion, 1 the previous one, 3 was not better."""
    add("a", 0.8, settings={"learning_rate": 0.1, "seed": 0})
    add("b", 0.9, "1", 0.8, settings={"learning_rate": 0.01, "seed": 0})
    return add("c", 0.85, "2", 0.9)


@pytest.fixture
def registry(place):
    return open_registry(place)


@pytest.fixture
def register(registry, job, place, request):
    """Registers a model with facts by the interface itself; returns its version."""

    def run(name, **facts):
        model = job(name) / "model"
        source = (
            request.getfixturevalue("uploaded")(model, name)
            if place.startswith("vertex")
            else str(model)
        )
        return registry.register(
            "m", source, {"decision": {"reasons": []}, "image": IMAGE, **facts}
        )

    return run


def test_run_that_registers_again_has_its_version(registry, register):
    assert [register("a", run="r1"), register("b", run="r2"), register("c", run="r1")] == [
        "1",
        "2",
        "1",
    ]
    assert [registry.version_of("m", run) for run in ("r1", "r2", "r9")] == ["1", "2", None]
    assert (registry.names(), numbers(registry), registry.versions("x")) == (["m"], ["1", "2"], [])
    assert (registry.aliases("x"), registry.version_of("x", "r1"), registry.history("x")) == (
        {},
        None,
        [],
    )


def test_champion_moves_from_the_one_compared(registry, register):
    with pytest.raises(UserError, match=r"'m' in .* has no previous champion to go back to"):
        registry.rollback("m")
    for name in "abc":
        register(name)
    with pytest.raises(UserError, match=r"unknown version of model 'm' '7' \(known: 1, 2, 3\)"):
        registry.promote("m", "7", instead_of=None)

    def champions():
        return [registry.aliases("m").get(alias) for alias in ("champion", "previous")]

    assert champions() == [None, None] and registry.promote("m", "1", instead_of=None)
    assert registry.promote("m", "2", instead_of="1") and champions() == ["2", "1"]
    assert not registry.promote("m", "3", instead_of="1") and not registry.promote(
        "m", "3", instead_of=None
    )
    assert registry.rollback("m") == "1" and champions() == ["1", "2"]
    with pytest.raises(UserError, match="version 2 of model 'm' is previous; move that away first"):
        registry.delete("m", "2")
    registry.delete("m", "3")
    assert numbers(registry) == ["1", "2"] and registry.find("m", "previous").number == "2"
    assert registry.promote("m", "previous") and champions() == ["2", "1"]
    assert not registry.promote("m", "champion") and champions() == ["2", "1"]


@pytest.mark.parametrize("name", ["..", "a/b", "Model", "", "m\n", "m" * 64])
def test_wrong_name_is_refused(registry, job, name):
    model = str(job() / "model")
    for use in (lambda: registry.register(name, model, {}), lambda: registry.versions(name)):
        with pytest.raises(UserError, match="lower-case letters, digits, - and _ only, at most 61"):
            use()


def test_every_verb(say, three, registry, place, refused, capsys):
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
    assert (shown["number"], shown["run"], shown["metrics"]["accuracy"]) == ("2", "b", 0.9)
    assert shown["settings"] == {"learning_rate": 0.01, "seed": 0}
    assert {"registered", "by", "code_version", "fingerprint", "split", "decision"} <= shown.keys()
    assert "champion" in shown["aliases"]

    assert say("rollback") == "m: version 1 is the champion again\n"
    assert say("promote", 3, "--why", "of the colour") == "m: version 3 is the champion now\n"
    assert say("promote", 2) == "m: version 2 is the champion now\n"
    for version, held in (("2", "champion"), ("3", "previous")):
        assert held in refused(main, "delete", "--registry", place, "--name", "m", version)
    assert say("delete", 1) == "m: version 1 is deleted\n"
    assert numbers(registry) == ["2", "3"]
    assert "unknown version of model 'm' '1'" in refused(
        main, "promote", "--registry", place, "--name", "m", "1"
    )
    assert "unknown model 'n' (known: m)" in refused(
        main, "show", "--registry", place, "--name", "n"
    )

    told = say("history")
    assert "  accuracy 0.9000 reaches " in told and " of the colour" in told
    first = [["add", "1"], ["promote", "1"], ["add", "2"], ["promote", "2"], ["add", "3"]]
    history = [*first, ["rollback", "1"], ["promote", "3"], ["promote", "2"], ["delete", "1"]]
    if place.startswith("vertex"):  # which keeps nothing of a version that is deleted
        history = [event for event in history if event[1] != "1"]
    assert [line.split()[2:4] for line in told.splitlines()[1:]] == history


def test_version_without_files_stays_champion(three, say, add, registry, place, tmp_path, refused):
    def lose(version):
        shutil.rmtree(registry.find("m", version).folder.replace("gs:/", f"{tmp_path}/buckets"))

    lose("2")
    assert "its files are gone" in say("list") and registry.aliases("m")["champion"] == "2"
    assert not registry.find("m", "2").has_files
    assert "not promoted: the champion was 1 when" in add("d", 0.87, "1", 0.8)
    assert say("promote", 3) == "m: version 3 is the champion now\n"
    flags = ("--registry", place, "--name", "m")
    assert "the files of version 2" in refused(main, "rollback", *flags)
    assert "the files of version 2" in refused(main, "card", *flags, "2")
