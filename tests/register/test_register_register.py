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


@pytest.fixture
def place(tmp_path):
    return str(tmp_path / "registry")


def read(place, version):
    return json.loads(pathlib.Path(place, "m", version, "version.json").read_text())


def test_version_keeps_its_evaluation(evaluated, place, monkeypatch):
    directory, evaluation = evaluated()
    model = {
        "model_dir": str(directory / "model"),
        "evaluation": evaluation,
        "registry": place,
        "name": "m",
    }
    monkeypatch.setenv("CODE_VERSION", "abc123")
    facts = read(place, register(**model))
    assert {key: facts[key] for key in evaluation if key != "champion"} | {
        "champion": None
    } == evaluation
    assert (facts["version"], facts["name"], facts["code_version"]) == ("1", "m", "abc123")
    monkeypatch.delenv("CODE_VERSION")
    assert read(place, register(**model))["code_version"]  # The commit of the checkout.


def test_killed_promotion_is_finished(evaluated, place, monkeypatch):
    directory, evaluation = evaluated()
    about = {"evaluation": evaluation, "registry": place, "name": "m"}
    about["version"] = register(model_dir=str(directory / "model"), **about)

    def killed(path, text):
        if path.name == "aliases.json":
            raise KeyboardInterrupt(path)
        write_text(path, text)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt, match="aliases"):
        patched.setattr("components.register.directory.write_text", killed)
        promote(**about)
    aliases = pathlib.Path(place, "m", "aliases.json")
    assert DirectoryRegistry(place).aliases("m") == {"champion": "1"} and not aliases.exists()
    assert promote(**about) == "version 1 is the champion already"
    assert json.loads(aliases.read_text()) == {"managed_by": "tfrecord-training", "champion": "1"}


def test_evaluation_of_other_model_refused(evaluated, place, tmp_path, refused):
    first, evaluation = evaluated("first")
    second, _ = evaluated("second")

    def add(file, model):
        return refused(
            main,
            "add",
            "--registry",
            place,
            "--name",
            "m",
            "--evaluation",
            file,
            "--model-dir",
            model,
        )

    assert "is of another model than the one in" in add(first / "evaluation.json", second / "model")
    (second / "model" / "variables" / "variables.index").write_text("changed")
    assert "is of another model than the one in" in add(
        second / "evaluation.json", second / "model"
    )
    assert "no such directory" in add(second / "evaluation.json", tmp_path / "nowhere")
    del evaluation["decision"]
    partial = tmp_path / "partial.json"
    partial.write_text(json.dumps(evaluation))
    message = "cannot be used (KeyError: 'decision'); make it with components.evaluate"
    assert message in add(partial, first / "model")
    assert not pathlib.Path(place).exists()


def test_registry_without_model_is_error(place, refused):
    assert "a registry is a local directory" in refused(
        main, "rollback", "--registry", "gs://b/r", "--name", "m"
    )
    assert "unknown model 'm'" in refused(main, "history", "--registry", place, "--name", "m")
    assert not pathlib.Path(place).exists()


def test_steps_register_and_promote(evaluated, place):
    runs = []
    for run, accuracy, champion in (
        ("r1", 0.8, None),
        ("r2", 0.9, {"version": "1", "metrics": {"accuracy": 0.8}}),
    ):
        directory, _ = evaluated(run, accuracy, champion=champion)
        evaluation = dsl.Artifact(name="evaluation", uri=str(directory / "evaluation.json"))
        about = {"registry": place, "name": "m", "run_id": run, "evaluation": evaluation}
        arguments = {**about, "cluster": '{"chief": {}}', "image": "r/i@sha256:7"}
        version = component.register(job_dir=f"{directory}/", **arguments)
        assert (
            component.register(job_dir=str(directory), **arguments) == version
        )  # A retry of the step.
        assert (read(place, version)["cluster"], read(place, version)["image"]) == (
            {"chief": {}},
            "r/i@sha256:7",
        )
        outcome = component.promote(**about)
        runs.append(about)
    assert outcome == "version 2 is the champion now, version 1 the previous one"
    assert component.promote(**about) == "version 2 is the champion already"
    outdated = "not promoted: the champion was none when the model was evaluated, and is 2 now"
    assert component.promote(**runs[0]).startswith(outdated)
    registry = DirectoryRegistry(place)
    assert [version.number for version in registry.versions("m")] == ["1", "2"]
    with pytest.raises(UserError, match="this run has registered no version of model 'm'"):
        component.promote(**{**about, "run_id": "r3"})
    assert registry.aliases("m")["champion"] == "2"


@pytest.mark.parametrize("verb", ["promote", "delete", "show"])
def test_flag_is_no_version(tmp_path, refused, verb):
    """A flag in place of a version is an error; it printed the version of the code."""
    flags = ("--registry", tmp_path, "--name", "m", "--version", 9)
    assert "unrecognized arguments: --version" in refused(main, verb, *flags)
