import itertools

import pytest

from components.evaluate.gate import CHAMPION, PROMOTE, REGISTER, REJECT, Comparison, decide


@pytest.mark.parametrize("passed", itertools.product([True, False], repeat=3))
def test_a_version_depends_on_all_but_the_champion_and_promotion_on_that_too(passed):
    worthy, useful, best = passed
    threshold = Comparison(who="threshold", passed=worthy, words="t")
    baseline = Comparison(who="baseline", passed=useful, words="b")
    champion = Comparison(who=CHAMPION, passed=best, words="c", metric="auc", candidate=0.9, other=0.8)
    decision = decide("auc", [threshold, baseline, champion], notes=["n"])
    assert decision["verdict"] == ((PROMOTE if best else REGISTER) if worthy and useful else REJECT)
    failed = [name for name, held in (("t", worthy), ("b", useful)) if not held]
    assert decision["why"] == ("; ".join(failed) or "c")
    alone = decide("auc", [threshold, baseline, Comparison(who=CHAMPION, passed=True, words="c")])
    assert alone["why"] == ("; ".join(failed) or "b; c")  # there is no champion whose figures say it
    assert decision["reasons"] == ["t", "b", "c", "n"] and decision["metric"] == "auc"
    assert [Comparison(**each) for each in decision["comparisons"]] == [threshold, baseline, champion]
