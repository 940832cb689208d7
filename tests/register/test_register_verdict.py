"""Gate, registration, promotion, registry, page and summary agree on one decision."""

import json

import pytest
from kfp import dsl

from common.errors import UserError
from components.evaluate import component, report
from components.evaluate.gate import (
    BASELINE,
    CHAMPION,
    PROMOTE,
    REGISTER,
    REJECT,
    Comparison,
    decide,
)
from components.register.directory import DirectoryRegistry
from components.register.register import promote, register


@pytest.mark.parametrize("verdict", [REJECT, REGISTER, PROMOTE])
def test_verdict_is_followed_everywhere(evaluated, tmp_path, verdict):
    directory, evaluation = evaluated()
    comparisons = [
        Comparison(who=BASELINE, passed=verdict != REJECT, words="of the baseline"),
        Comparison(who=CHAMPION, passed=verdict == PROMOTE, words="of the champion"),
    ]
    evaluation |= {
        "gate": {},
        "figures": {},
        "parts": {},
        "decision": decide("accuracy", comparisons),
    }
    file = directory / "evaluation.json"
    file.write_text(json.dumps(evaluation))
    assert component.gate(evaluation=dsl.Artifact(name="evaluation", uri=str(file))) == verdict
    assert f"Decision: {verdict}<" in report.page(evaluation)
    assert report.summary(evaluation).startswith(f"## {verdict}\n")
    about = {"evaluation": evaluation, "registry": str(tmp_path / "registry"), "name": "m"}
    model, registry = str(directory / "model"), DirectoryRegistry(about["registry"])
    if verdict == REJECT:
        with pytest.raises(UserError, match=r"the evaluation rejects .*: of the baseline"):
            register(model_dir=model, **about)
        assert registry.versions("m") == []
        return
    outcome = promote(version=register(model_dir=model, **about), **about)
    assert outcome.startswith(
        "version 1 is the champion" if verdict == PROMOTE else "not promoted: of the baseline"
    )
    assert registry.aliases("m") == ({CHAMPION: "1"} if verdict == PROMOTE else {})
