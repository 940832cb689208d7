import json
import pathlib

import pytest

from components.evaluate.gate import BASELINE, Comparison, decide
from components.register.__main__ import main
from components.register.register import register
from tests.errors import user_error


@pytest.fixture
def place(tmp_path):
    return f"{tmp_path}/registry"


def read(place, version):
    return json.loads(pathlib.Path(place, "m", version, "version.json").read_text())


def test_version_keeps_its_evaluation(evaluated, place, monkeypatch):
    directory, evaluation = evaluated()
    monkeypatch.setenv("CODE_VERSION", "abc123")
    about = {"evaluation": evaluation, "registry": place, "name": "m"}
    about |= {"cluster": '{"chief": {}}', "image": "r/i@sha256:7"}
    facts = read(place, register(model_dir=f"{directory}/model", **about))
    del evaluation["champion"]
    assert {key: facts[key] for key in evaluation} == evaluation
    assert (facts["name"], facts["code_version"], facts["steps"]) == ("m", "abc123", 30)
    assert (facts["cluster"], facts["image"]) == ({"chief": {}}, "r/i@sha256:7")


def test_evaluation_of_other_model_refused(evaluated, place, refused):
    first, evaluation = evaluated("first")
    second, _ = evaluated("second")

    def add(job, model):
        flags = ["--evaluation", job / "evaluation.json", "--model-dir", model]
        return refused(main, "add", "--registry", place, "--name", "m", *flags)

    other = "is of another model than the one in"
    assert other in add(first, second / "model")
    del evaluation["decision"]
    (first / "evaluation.json").write_text(json.dumps(evaluation))
    message = "cannot be used (KeyError: 'decision'); make it with components.evaluate"
    assert message in add(first, first / "model")
    assert not pathlib.Path(place).exists()


def test_rejected_model_gets_no_version(evaluated, place):
    directory, evaluation = evaluated()
    baseline = Comparison(who=BASELINE, passed=False, words="of the baseline")
    evaluation["decision"] = decide("accuracy", [baseline])
    about = {"evaluation": evaluation, "registry": place, "name": "m"}
    with user_error(r"the evaluation rejects .*: of the baseline"):
        register(model_dir=f"{directory}/model", **about)
    assert not pathlib.Path(place).exists()
