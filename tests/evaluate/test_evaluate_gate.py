import pytest

from components.evaluate.gate import PROMOTE, REGISTER, REJECT, decide
from trainer.nn.tasks.classification import Classification
from trainer.nn.tasks.regression import Regression

BETTER = Classification(("no", "yes")).better


@pytest.mark.parametrize(
    ("ours", "least", "theirs", "verdict"),
    [
        (0.8, 0.8, None, PROMOTE),  # reaching the threshold is enough
        (0.7999, 0.8, None, REJECT),
        (0.5, 0.4, None, REJECT),  # the majority class is as good
        (0.8, 0.7, 0.8, REGISTER),  # equal is not better
        (0.8, 0.7, 0.79, PROMOTE),
        (0.8, 0.9, 0.1, REJECT),
        (0.8, 0.7, 0.0, PROMOTE),  # a champion that is never right is a champion
        (0.8, 0.7, "incomparable", REGISTER),
    ],
)
def test_register_and_promote_follow_from_the_comparisons_alone(ours, least, theirs, verdict):
    champion, why = {"metrics": {"accuracy": theirs}, "incomparable": ""}, "there is no champion to compare with"
    if theirs is None:
        champion = None
    elif theirs == "incomparable":
        champion = {"metrics": None, "incomparable": "it takes other images"}
        why = "cannot be compared with the champion: it takes other images"
    else:
        why = f"accuracy {ours:.4f} {'beats' if ours > theirs else 'does not beat'} the champion, {theirs:.4f}"
    baseline = {"accuracy": 0.5, "rule": "majority class"}
    decision = decide(
        {"accuracy": ours},
        baseline,
        metric="accuracy",
        better=BETTER,
        thresholds={"accuracy": least},
        champion=champion,
    )
    assert decision["verdict"] == verdict
    assert decision["reasons"] == [
        f"accuracy {ours:.4f} {'reaches' if ours >= least else 'misses'} the threshold {least:.4f}",
        f"accuracy {ours:.4f} {'beats' if ours > 0.5 else 'does not beat'} the majority class, 0.5000",
        why,
    ]


def test_every_threshold_holds_and_the_metric_compares():
    def verdict(auc: float, accuracy: float) -> str:
        return decide(
            {"auc": auc, "accuracy": accuracy},
            {"auc": 0.9, "accuracy": 0.95, "rule": "best single column, payment"},
            metric="auc",
            better=BETTER,
            thresholds={"auc": 0.8, "accuracy": 0.7},
            champion={"metrics": {"auc": 0.93, "accuracy": 0.99}},
        )["verdict"]

    assert verdict(0.94, 0.7) == PROMOTE
    assert verdict(0.93, 0.7) == REGISTER
    assert verdict(0.94, 0.69) == REJECT
    assert verdict(0.9, 0.99) == REJECT


@pytest.mark.parametrize(
    ("rmse", "most", "theirs", "verdict"),
    [(0.5, 0.5, 0.6, PROMOTE), (0.5, 0.4, 0.6, REJECT), (0.5, 0.6, 0.5, REGISTER), (0.7, 0.8, 0.8, REJECT)],
)
def test_of_an_error_less_is_better_in_every_comparison(rmse, most, theirs, verdict):
    decision = decide(
        {"rmse": rmse},
        {"rmse": 0.7, "rule": "mean of the training split"},
        metric="rmse",
        better=Regression(("fare",), (1.0,)).better,
        thresholds={"rmse": most},
        champion={"metrics": {"rmse": theirs}},
    )
    assert decision["verdict"] == verdict


@pytest.mark.parametrize("value", [float("nan"), 0.9])
def test_nothing_is_better_by_a_metric_that_is_no_number(value):
    nan = float("nan")
    figures = {"metric": "accuracy", "better": BETTER, "champion": {"metrics": {"accuracy": nan}}}
    baseline = {"accuracy": 0.1, "rule": "majority class"}
    assert decide({"accuracy": value}, baseline, thresholds={"accuracy": nan}, **figures)["verdict"] == REJECT
    assert decide({"accuracy": value}, baseline, thresholds={}, **figures)["verdict"] != PROMOTE
