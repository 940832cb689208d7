"""Gate, registration, promotion, registry, page and summary agree on one decision."""

import json

import pytest
from kfp import dsl

from common.errors import UserError
from components.evaluate import component, report
from components.evaluate.gate import BASELINE, CHAMPION, Comparison, decide
from components.register.directory import DirectoryRegistry
from components.register.register import promote, register


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        ("reject", None),
        ("register", "not promoted: of the baseline"),
        ("promote", "version 1 is the champion"),
    ],
)
def test_verdict_is_followed_everywhere(evaluated, tmp_path, verdict, outcome):
    directory, evaluation = evaluated()
    comparisons = [
        Comparison(who=BASELINE, passed=verdict != "reject", words="of the baseline"),
        Comparison(who=CHAMPION, passed=verdict == "promote", words="of the champion"),
    ]
    decision = decide("accuracy", comparisons)
    evaluation |= {"gate": {}, "figures": {}, "parts": {}, "decision": decision}
    file = directory / "evaluation.json"
    file.write_text(json.dumps(evaluation))
    assert component.gate(evaluation=dsl.Artifact(name="evaluation", uri=str(file))) == verdict
    assert f"Decision: {verdict}<" in report.page(evaluation)
    assert report.summary(evaluation).startswith(f"## {verdict}\n")
    about = {"evaluation": evaluation, "registry": str(tmp_path / "registry"), "name": "m"}
    if outcome:
        version = register(model_dir=str(directory / "model"), **about)
        assert promote(version=version, **about).startswith(outcome)
    else:
        with pytest.raises(UserError, match=r"the evaluation rejects .*: of the baseline"):
            register(model_dir=str(directory / "model"), **about)
    registry = DirectoryRegistry(about["registry"])
    assert len(registry.versions("m")) == (1 if outcome else 0)
    assert registry.aliases("m") == ({CHAMPION: "1"} if verdict == "promote" else {})
