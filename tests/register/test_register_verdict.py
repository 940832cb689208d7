"""One decision, whoever is asked: the gate's step, registration, promotion, the registry, the page and the summary."""

import json

import pytest
from kfp import dsl

from common.errors import UserError
from components.evaluate import component, report
from components.evaluate.gate import BASELINE, CHAMPION, PROMOTE, REGISTER, REJECT, Comparison, decide
from components.register.directory import DirectoryRegistry
from components.register.register import promote, register


@pytest.mark.parametrize("verdict", [REJECT, REGISTER, PROMOTE])
def test_everybody_says_the_same_verdict(evaluated, tmp_path, verdict):
    directory, evaluation = evaluated("job", 0.9)
    model, place = str(directory / "model"), str(tmp_path / "registry")
    comparisons = [
        Comparison(who=BASELINE, passed=verdict != REJECT, words="of the baseline"),
        Comparison(who=CHAMPION, passed=verdict == PROMOTE, words="of the champion"),
    ]
    evaluation |= {"gate": {}, "figures": {}, "parts": {}}
    evaluation["decision"] = decide("accuracy", comparisons)
    (tmp_path / "evaluation").write_text(json.dumps(evaluation))
    assert component.gate(evaluation=dsl.Artifact(name="evaluation", uri=str(tmp_path / "evaluation"))) == verdict
    assert f"Decision: {verdict}<" in report.page(evaluation)
    assert report.summary(evaluation).startswith(f"## {verdict}\n")
    if verdict == REJECT:
        with pytest.raises(UserError, match=r"the evaluation rejects .*: of the baseline"):
            register(model_dir=model, evaluation=evaluation, registry=place, name="m")
        assert DirectoryRegistry(place).versions("m") == []
        return
    version = register(model_dir=model, evaluation=evaluation, registry=place, name="m")
    told = promote(evaluation=evaluation, registry=place, name="m", version=version)
    assert told.startswith("version 1 is the champion" if verdict == PROMOTE else "not promoted: of the baseline")
    assert DirectoryRegistry(place).aliases("m").get(CHAMPION) == (version if verdict == PROMOTE else None)
