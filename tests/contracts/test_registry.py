"""Contract of `Registry`, for each implementation."""

import json
import shutil

import pytest

from components.register.__main__ import main
from components.register.register import open_registry
from tests.cloud.conftest import IMAGE
from tests.errors import user_error


def numbers(registry):
    return [version.number for version in registry.versions("m")]


@pytest.fixture(params=["directory", "vertex"])
def place(request, tmp_path):
    is_directory = request.param == "directory"
    return str(tmp_path / "registry") if is_directory else request.getfixturevalue("vertex_place")


@pytest.fixture
def say(place, capsys):
    """Runs a verb; returns what it prints."""

    def run(verb, *words):
        assert main([verb, "--registry", place, "--name", "m", *map(str, words)]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def refuse(refused, place):
    """Runs a verb that is refused; returns the line."""

    def run(verb, *words, name="m"):
        return refused(main, verb, "--registry", place, "--name", name, *words)

    return run


@pytest.fixture
def source_of(request, place):
    """Returns where the registry gets the model in a directory from."""

    def run(model, name):
        upload = place.startswith("vertex") and request.getfixturevalue("uploaded")
        return str(upload(model, name) if upload else model)

    return run


@pytest.fixture
def add(evaluated, say, source_of):
    """Evaluates and adds a model that was compared with a champion; returns what is printed."""

    def run(name, accuracy, champion=None, beaten=0.0, **more):
        if champion:
            champion = {"version": champion, "metrics": {"accuracy": beaten}, "incomparable": ""}
        directory, _ = evaluated(name, accuracy, champion=champion, **more)
        model = ("--model-dir", source_of(directory / "model", name), "--run", name)
        return say("add", *model, "--evaluation", directory / "evaluation.json", "--image", IMAGE)

    return run


@pytest.fixture
def three(add):
    """Version 2 is the champion, 1 the previous one, 3 was not better."""
    add("a", 0.8, learning_rate=0.1)
    add("b", 0.9, "1", 0.8, learning_rate=0.01)
    return add("c", 0.85, "2", 0.9)


@pytest.fixture
def registry(place):
    return open_registry(place)


@pytest.fixture
def register(registry, job, source_of):
    """Registers a model with facts by the interface itself; returns its version."""

    def run(name, **facts):
        facts = {"decision": {"reasons": []}, "image": IMAGE, **facts}
        return registry.register("m", source_of(job(name) / "model", name), facts)

    return run


def test_run_that_registers_again_has_its_version(registry, register):
    versions = [register("a", run="r1"), register("b", run="r2"), register("c", run="r1")]
    assert versions == ["1", "2", "1"]
    assert [registry.version_of("m", run) for run in ("r1", "r2", "r9")] == ["1", "2", None]
    assert (registry.names(), numbers(registry)) == (["m"], ["1", "2"])
    assert (registry.versions("x"), registry.aliases("x"), registry.history("x")) == ([], {}, [])


def test_tenth_version_follows_ninth(registry, register):
    for number in range(1, 11):
        register(f"r{number}")
    assert numbers(registry) == [*map(str, range(1, 11))]


def test_champion_moves_from_the_one_compared(registry, register):
    with user_error(r"'m' in .* has no previous champion to go back to"):
        registry.rollback("m")
    for name in "abc":
        register(name)
    with user_error(r"unknown version of model 'm' '7' \(known: 1, 2, 3\)"):
        registry.promote("m", "7", instead_of=None)

    def champions():
        return [registry.aliases("m").get(alias) for alias in ("champion", "previous")]

    assert champions() == [None, None] and registry.promote("m", "1", instead_of=None)
    assert registry.promote("m", "2", instead_of="1") and champions() == ["2", "1"]
    assert not registry.promote("m", "3", instead_of="1")
    assert not registry.promote("m", "3", instead_of=None)
    assert registry.rollback("m") == "1" and champions() == ["1", "2"]
    with user_error("version 2 of model 'm' is previous; move that away first"):
        registry.delete("m", "2")
    registry.delete("m", "3")
    assert numbers(registry) == ["1", "2"] and registry.find("m", "previous").number == "2"
    assert registry.promote("m", "previous") and champions() == ["2", "1"]
    assert not registry.promote("m", "champion") and champions() == ["2", "1"]


@pytest.mark.parametrize("name", ["..", "a/b", "Model", "", "m\n", "m" * 64])
def test_wrong_name_is_refused(registry, job, name):
    model = str(job() / "model")
    for use in (lambda: registry.register(name, model, {}), lambda: registry.versions(name)):
        with user_error("lower-case letters, digits, - and _ only, at most 61"):
            use()


def test_every_verb(say, three, registry, refuse):
    assert "version 3" in three and "m: not promoted: " in three
    _, one, two, last = (line.split() for line in say("list").splitlines())
    assert [*one[3:5], *two[3:5], last[4]] == ["accuracy", "0.8000", "accuracy", "0.9000", "0.8500"]
    assert one[5] == "previous" and two[5].startswith("champion")
    shown = json.loads(say("show"))
    assert (shown["number"], shown["run"]) == ("2", "b")
    assert shown["settings"] == {"learning_rate": 0.01}

    assert say("rollback") == "m: version 1 is the champion again\n"
    assert say("promote", 3, "--why", "of the colour") == "m: version 3 is the champion now\n"
    assert "champion" in refuse("delete", 3) and "previous" in refuse("delete", 1)
    assert say("delete", 2) == "m: version 2 is deleted\n" and numbers(registry) == ["1", "3"]
    assert "unknown version of model 'm' '2'" in refuse("promote", 2)
    assert "unknown model 'n' (known: m)" in refuse("show", name="n")

    history = say("history")
    assert "  accuracy 0.8" in history and " of the colour" in history
    events = [" ".join(line.split()[2:4]) for line in history.splitlines()[1:]]
    # Vertex AI keeps nothing of a deleted version.
    others = [event for event in events if not event.endswith(" 2")]
    assert others == ["add 1", "promote 1", "add 3", "rollback 1", "promote 3"]


def test_version_without_files_stays_champion(three, say, add, registry, refuse, tmp_path):
    def lose(version):
        shutil.rmtree(registry.find("m", version).folder.replace("gs:/", f"{tmp_path}/buckets"))

    lose("2")
    assert "its files are gone" in say("list") and registry.aliases("m")["champion"] == "2"
    assert not registry.find("m", "2").has_files
    assert "not promoted: the champion was 1 when" in add("d", 0.87, "1", 0.8)
    assert say("promote", 3) == "m: version 3 is the champion now\n"
    assert "the files of version 2" in refuse("rollback")
    assert "the files of version 2" in refuse("card", "2")
