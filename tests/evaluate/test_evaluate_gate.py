from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.evaluate.gate import PROMOTE, REGISTER, REJECT, decide

shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.5001, 0.75, 0.9, 1.0]) | st.floats(0, 1)


def judged(accuracy, baseline, threshold, champion, incomparable=""):
    return decide(
        {"accuracy": accuracy},
        {"accuracy": baseline, "rule": "majority class"},
        metric="accuracy",
        thresholds={"accuracy": threshold},
        champion=None if champion is None else {"accuracy": champion},
        incomparable=incomparable,
    )


@pytest.mark.parametrize(
    ("accuracy", "threshold", "champion", "verdict"),
    [
        (0.8, 0.7, None, PROMOTE),
        (0.8, 0.8, None, PROMOTE),  # reaching the threshold is enough
        (0.8, 0.81, None, REJECT),
        (0.5, 0.4, None, REJECT),  # the majority class is as good
        (0.4, 0.0, None, REJECT),
        (0.8, 0.7, 0.79, PROMOTE),
        (0.8, 0.7, 0.8, REGISTER),  # equal is not better
        (0.8, 0.7, 0.9, REGISTER),
        (0.8, 0.7, 0.0, PROMOTE),  # a champion that is never right is a champion
        (0.6, 0.7, 0.5, REJECT),
        (0.5, 0.4, 0.4, REJECT),
    ],
)
def test_each_combination_of_the_three_comparisons(accuracy, threshold, champion, verdict):
    assert judged(accuracy, 0.5, threshold, champion).verdict == verdict


@given(shares, shares, shares, st.none() | shares)
def test_register_and_promote_follow_from_the_comparisons_alone(accuracy, baseline, threshold, champion):
    accepted = accuracy >= threshold and accuracy > baseline
    better = champion is None or accuracy > champion
    decision = judged(accuracy, baseline, threshold, champion)
    assert decision.verdict == (REJECT if not accepted else PROMOTE if better else REGISTER)
    reached, beaten, compared = decision.reasons
    assert reached == f"accuracy {accuracy:.4f} " + (
        f"reaches the threshold {threshold:.4f}" if accuracy >= threshold else f"is below the threshold {threshold:.4f}"
    )
    assert beaten == ("beats" if accuracy > baseline else "does not beat") + f" the majority class, {baseline:.4f}"
    if champion is None:
        assert compared == "there is no champion to compare with"
    else:
        assert compared == ("beats" if better else "does not beat") + f" the champion, {champion:.4f}"


@given(shares, shares, shares)
def test_nothing_is_promoted_over_a_champion_that_cannot_be_compared(accuracy, baseline, threshold):
    decision = judged(accuracy, baseline, threshold, None, incomparable="it takes other images")
    assert decision.verdict == (REGISTER if accuracy >= threshold and accuracy > baseline else REJECT)
    assert decision.reasons[2] == "cannot be compared with the champion: it takes other images"


def test_every_threshold_holds_and_the_metric_compares():
    def verdict(auc: float, accuracy: float) -> str:
        return decide(
            {"auc": auc, "accuracy": accuracy},
            {"auc": 0.9, "accuracy": 0.95, "rule": "best single column, payment"},
            metric="auc",
            thresholds={"auc": 0.8, "accuracy": 0.7},
            champion={"auc": 0.93, "accuracy": 0.99},
        ).verdict

    assert verdict(0.94, 0.7) == PROMOTE
    assert verdict(0.93, 0.7) == REGISTER
    assert verdict(0.94, 0.69) == REJECT
    assert verdict(0.9, 0.99) == REJECT
