from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from components.evaluate.gate import PROMOTE, REGISTER, REJECT, decide

shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5001, 0.75, 0.9, 1.0]) | st.floats(0, 1)
WHY = "it takes other images"


@settings(max_examples=60)
@given(ours=shares, baseline=shares, least=shares, theirs=st.sampled_from([None, "incomparable"]) | shares)
@example(ours=0.8, baseline=0.5, least=0.8, theirs=None)  # reaching the threshold is enough
@example(ours=0.5, baseline=0.5, least=0.4, theirs=None)  # the majority class is as good
@example(ours=0.8, baseline=0.5, least=0.7, theirs=0.8)  # equal is not better
@example(ours=0.8, baseline=0.5, least=0.7, theirs=0.0)  # a champion that is never right is a champion
@example(ours=0.8, baseline=0.5, least=0.7, theirs="incomparable")
def test_register_and_promote_follow_from_the_comparisons_alone(ours, baseline, least, theirs):
    champion = {"metrics": {"accuracy": theirs}, "incomparable": ""}
    if theirs is None:
        champion, better, why = None, True, "there is no champion to compare with"
    elif theirs == "incomparable":
        champion, better = {"metrics": None, "incomparable": WHY}, False
        why = f"cannot be compared with the champion: {WHY}"
    else:
        better = ours > theirs
        why = f"{'beats' if better else 'does not beat'} the champion, {theirs:.4f}"
    decision = decide(
        {"accuracy": ours},
        {"accuracy": baseline, "rule": "majority class"},
        metric="accuracy",
        thresholds={"accuracy": least},
        champion=champion,
    )
    accepted = ours >= least and ours > baseline
    assert decision["verdict"] == (REJECT if not accepted else PROMOTE if better else REGISTER)
    assert decision["reasons"] == [
        f"accuracy {ours:.4f} {'reaches' if ours >= least else 'is below'} the threshold {least:.4f}",
        f"{'beats' if ours > baseline else 'does not beat'} the majority class, {baseline:.4f}",
        why,
    ]


def test_every_threshold_holds_and_the_metric_compares():
    def verdict(auc: float, accuracy: float) -> str:
        return decide(
            {"auc": auc, "accuracy": accuracy},
            {"auc": 0.9, "accuracy": 0.95, "rule": "best single column, payment"},
            metric="auc",
            thresholds={"auc": 0.8, "accuracy": 0.7},
            champion={"metrics": {"auc": 0.93, "accuracy": 0.99}},
        )["verdict"]

    assert verdict(0.94, 0.7) == PROMOTE
    assert verdict(0.93, 0.7) == REGISTER
    assert verdict(0.94, 0.69) == REJECT
    assert verdict(0.9, 0.99) == REJECT
