"""Registration, promotion and registry follow the decision of an evaluation."""

import pytest

from common.errors import UserError
from components.evaluate import report
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
    assert f"Decision: {verdict}<" in report.page(evaluation)
    assert report.summary(evaluation).startswith(f"## {verdict}\n")
    about = {"evaluation": evaluation, "registry": str(tmp_path), "name": "m"}
    if outcome:
        version = register(model_dir=f"{directory}/model", **about)
        assert promote(version=version, **about).startswith(outcome)
    else:
        with pytest.raises(UserError, match=r"the evaluation rejects .*: of the baseline"):
            register(model_dir=f"{directory}/model", **about)
    registry = DirectoryRegistry(str(tmp_path))
    assert len(registry.versions("m")) == (1 if outcome else 0)
    assert registry.aliases("m") == ({CHAMPION: "1"} if verdict == "promote" else {})
