import json
import pathlib

import pytest
from kfp import dsl

from common.errors import UserError
from common.storage.files import write_text
from components.register import component
from components.register.__main__ import main
from components.register.directory import DirectoryRegistry
from components.register.register import promote, register
from components.register.registry import CHAMPION


def scored(version, **metrics):
    """A champion as an evaluation tells of it."""
    return {"version": version, "metrics": metrics, "incomparable": ""}


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "registry")


@pytest.fixture
def registered(evaluated, place):
    """Evaluates and registers a model; returns version and evaluation."""

    def run(name="job", accuracy=0.9, **more):
        directory, evaluation = evaluated(name, accuracy, **more)
        model = str(directory / "model")
        return register(model_dir=model, evaluation=evaluation, registry=place, name="m"), evaluation

    return run


@pytest.fixture
def champion(registered, place):
    """Version 1, the champion, with accuracy 0.9."""
    version, evaluation = registered("champion", 0.9)
    promote(evaluation=evaluation, registry=place, name="m", version=version)
    return scored("1", **evaluation["metrics"])


def current(place):
    return DirectoryRegistry(place).aliases("m").get(CHAMPION)


def read(place, version):
    return json.loads(pathlib.Path(place, "m", version, "version.json").read_text())


def test_version_keeps_its_evaluation(registered, place, monkeypatch):
    monkeypatch.setenv("CODE_VERSION", "abc123")
    version, evaluation = registered()
    facts = read(place, version)
    told = {*evaluation} - {"champion"}
    assert {key: facts[key] for key in told} == {key: evaluation[key] for key in told}
    assert (facts["version"], facts["name"], facts["code_version"]) == ("1", "m", "abc123")
    monkeypatch.delenv("CODE_VERSION")
    version, _ = registered("other")
    assert read(place, version)["code_version"]  # the commit of the checkout


@pytest.mark.parametrize(
    ("metric", "auc", "current_now"), [("auc", 0.95, "2"), ("auc", 0.90, "1"), ("accuracy", 0.95, "1")]
)
def test_champion_moves_by_verdict(registered, place, metric, auc, current_now):
    _, evaluation = registered("first", 0.82, auc=0.90, metric=metric)
    promote(evaluation=evaluation, registry=place, name="m", version="1")
    _, evaluation = registered("second", 0.80, auc=auc, metric=metric, champion=scored("1", accuracy=0.82, auc=0.90))
    told = promote(evaluation=evaluation, registry=place, name="m", version="2")
    assert current(place) == current_now and read(place, "2")["metric"] == metric
    if current_now == "2":
        assert told == "version 2 is the champion now, version 1 the previous one"
        told = promote(evaluation=evaluation, registry=place, name="m", version="2")
        assert told == "version 2 is the champion already"
    else:
        assert told.startswith("not promoted: ") and "does not beat the champion, 0." in told


def test_killed_promotion_is_finished(registered, place, monkeypatch):
    version, evaluation = registered()
    said = {"evaluation": evaluation, "registry": place, "name": "m", "version": version}

    def killed(path, text):
        if path.name == "aliases.json":
            raise KeyboardInterrupt(path)
        write_text(path, text)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt, match="aliases"):
        patched.setattr("components.register.directory.write_text", killed)
        promote(**said)
    aliases = pathlib.Path(place, "m", "aliases.json")
    assert current(place) == version and not aliases.exists()
    assert promote(**said) == "version 1 is the champion already"
    assert json.loads(aliases.read_text()) == {"managed_by": "tfrecord-training", "champion": "1"}


def test_outdated_champion_is_refused(champion, registered, place):
    second, evaluation = registered("second", 0.95, champion=champion)
    promote(evaluation=evaluation, registry=place, name="m", version=second)
    third, evaluation = registered("third", 0.99, champion=champion)
    told = promote(evaluation=evaluation, registry=place, name="m", version=third)
    assert told.startswith("not promoted: the champion was 1 when the model was evaluated, and is 2 now")
    assert current(place) == "2"


def test_evaluation_of_other_model_is_refused(evaluated, place, tmp_path, refused):
    first, evaluation = evaluated("first")
    second, _ = evaluated("second")
    flags = ["--registry", place, "--name", "m"]

    def line(evaluation, model=second / "model"):
        return refused(main, "add", *flags, "--evaluation", evaluation, "--model-dir", model)

    assert "is of another model than the one in" in line(first / "evaluation.json")
    (second / "model" / "variables" / "variables.index").write_text("changed")
    assert "is of another model than the one in" in line(second / "evaluation.json")
    assert "no such directory" in line(second / "evaluation.json", tmp_path / "nowhere")
    del evaluation["decision"]
    (tmp_path / "partial.json").write_text(json.dumps(evaluation))
    assert "cannot be used (KeyError: 'decision'); make it with components.evaluate" in line(
        tmp_path / "partial.json", first / "model"
    )
    assert "a registry is a local directory" in refused(main, "rollback", "--registry", "gs://b/r", "--name", "m")
    assert "unknown model 'm'" in refused(main, "history", *flags)
    assert not (tmp_path / "registry").exists()


def test_steps_register_and_promote(evaluated, place, tmp_path):
    for run, accuracy, champion in (("r1", 0.8, None), ("r2", 0.9, scored("1", accuracy=0.8))):
        directory, _ = evaluated(run, accuracy, champion=champion)
        evaluation = dsl.Artifact(name="evaluation", uri=str(directory / "evaluation.json"))
        said = {"registry": place, "name": "m", "run_id": run, "evaluation": evaluation}
        made = {**said, "cluster": '{"chief": {}}', "image": "r/i@sha256:7"}
        first = component.register(job_dir=f"{directory}/", **made)
        assert component.register(job_dir=str(directory), **made) == first  # a retry of the step
        assert (read(place, first)["cluster"], read(place, first)["image"]) == ({"chief": {}}, "r/i@sha256:7")
        assert component.promote(**said).startswith(f"version {first} is the champion now")
    assert [version.number for version in DirectoryRegistry(place).versions("m")] == ["1", "2"]
    with pytest.raises(UserError, match="this run has registered no version of model 'm'"):
        component.promote(**{**said, "run_id": "r3"})
    assert current(place) == "2"


@pytest.mark.parametrize("verb", ["promote", "delete", "show"])
def test_flag_is_no_version(tmp_path, refused, verb):
    """It printed the version of the code, as if all had been done."""
    flags = ("--registry", tmp_path, "--name", "m", "--version", 9)
    assert "unrecognized arguments: --version" in refused(main, verb, *flags)
