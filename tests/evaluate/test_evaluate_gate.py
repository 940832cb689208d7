import itertools
import math

import numpy as np
import pytest

from components.evaluate.bootstrap import bootstrap
from components.evaluate.comparing import beat, reach
from components.evaluate.gate import CHAMPION, PROMOTE, REGISTER, REJECT, Comparison, decide
from trainer.nn.tasks.classification import Classification
from trainer.nn.tasks.regression import Regression

CLASSES = Classification(("a", "b", "c"))
NUMBERS = Regression(("fare",), (1.0,))


def hits(count: int, of: int = 400) -> np.ndarray:
    """Answers of a model that takes the right class, 0, for the first `count` of so many records."""
    return np.eye(3)[np.where(np.arange(of) < count, 0, 1)] * 0.8 + 0.1


def compared(ours: np.ndarray, theirs: np.ndarray, *, labels=None, task=CLASSES, confidence=0.95, margin=0.0):
    labels = np.zeros(len(ours), int) if labels is None else labels
    found = bootstrap(task, {"ours": ours, "theirs": theirs}, labels)
    return beat(CHAMPION, "the champion", found["ours"], found["theirs"], task, confidence=confidence, margin=margin)


@pytest.mark.parametrize("passed", itertools.product([True, False], repeat=3))
def test_a_version_depends_on_all_but_the_champion_and_promotion_on_that_too(passed):
    worthy, useful, best = passed
    threshold = Comparison(who="threshold", passed=worthy, words="t")
    baseline = Comparison(who="baseline", passed=useful, words="b")
    champion = Comparison(
        who=CHAMPION, passed=best, words="c", metric="auc", candidate=0.9, other=0.8, interval=(0.0, 0.1)
    )
    decision = decide("auc", [threshold, baseline, champion], notes=["n"])
    assert decision["verdict"] == ((PROMOTE if best else REGISTER) if worthy and useful else REJECT)
    failed = [name for name, held in (("t", worthy), ("b", useful)) if not held]
    assert decision["why"] == ("; ".join(failed) or "c")
    alone = decide("auc", [threshold, baseline, Comparison(who=CHAMPION, passed=True, words="c")])
    assert alone["why"] == ("; ".join(failed) or "b; c")  # there is no champion whose figures say it
    assert decision["reasons"] == ["t", "b", "c", "n"] and decision["metric"] == "auc"
    assert [Comparison(**each) for each in decision["comparisons"]] == [threshold, baseline, champion]


@pytest.mark.parametrize(
    ("value", "threshold", "task", "metric", "passed"),
    [
        (0.8, 0.8, CLASSES, "accuracy", True),  # reaching is enough
        (0.7999, 0.8, CLASSES, "accuracy", False),
        (0.5, 0.4, NUMBERS, "rmse", False),  # of an error less is better
        (math.nan, 0.0, CLASSES, "accuracy", False),
        (0.9, math.nan, CLASSES, "accuracy", False),
    ],
)
def test_a_threshold_is_reached_or_missed(value, threshold, task, metric, passed):
    found = reach("threshold", metric, value, threshold, task, 9)
    assert (found.passed, found.threshold, found.records) == (passed, threshold, 9)
    assert f"{metric} {value:.4f} {'reaches' if passed else 'misses'} the threshold {threshold:.4f}" == found.words


def test_one_record_more_is_chance_and_many_more_are_not():
    one, many = compared(hits(391), hits(390)), compared(hits(390), hits(370))
    assert not one.passed and 0.2 < one.p < 0.7 and one.difference == pytest.approx(1 / 400)
    assert one.words.startswith("accuracy 0.9775 does not beat the champion, 0.9750, by more than chance (p 0.")
    assert many.passed and many.p < 0.01 and many.records == 400
    assert many.words.startswith("accuracy 0.9750 beats the champion, 0.9250 (by 0.")
    for each in (one, many):
        low, high = each.interval
        assert low < each.difference < high and each.passed == (low > 0)
    assert compared(hits(391), hits(390), confidence=None).passed  # who asks for no certainty gets none


def test_a_lead_has_to_exceed_the_margin():
    assert compared(hits(390), hits(370), margin=0.02).passed and not compared(hits(390), hits(370), margin=0.04).passed
    short = compared(hits(390), hits(370), margin=0.05, confidence=None)
    assert not short.passed and "does not beat the champion, 0.9250, by more than the margin 0.05" in short.words


@pytest.mark.parametrize("confidence", [0.95, 0.5, None])
def test_equal_models_and_what_is_no_number_never_win(confidence):
    equal = compared(hits(200), hits(200), confidence=confidence)
    assert (equal.passed, equal.p, equal.difference, equal.records_needed) == (False, 1.0, 0.0, None)
    labels, answers = np.arange(40.0), np.arange(40.0)[:, np.newaxis]
    for ours, theirs in itertools.permutations((answers, np.full((40, 1), math.nan)), 2):
        found = compared(ours, theirs, labels=labels, task=NUMBERS, confidence=confidence)
        assert not found.passed and found.p == 1.0 and found.interval is None


def test_of_an_error_less_is_better_and_the_answers_may_be_swapped():
    random = np.random.default_rng(0)
    labels = random.normal(size=500)
    close, far = ((labels + random.normal(size=500) * scale)[:, np.newaxis] for scale in (1.0, 1.3))
    better = compared(close, far, labels=labels, task=NUMBERS)
    worse = compared(far, close, labels=labels, task=NUMBERS)
    assert better.metric == "rmse" and better.passed and not worse.passed and worse.p == 1.0
    assert better.difference == pytest.approx(-worse.difference) and better.interval == pytest.approx(
        tuple(-end for end in reversed(worse.interval))
    )


def test_so_many_records_show_half_a_point_four_times_out_of_five():
    random = np.random.default_rng(1)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
        """Two models, better at 905 and 900 of 1,000 records, each by itself."""
        return tuple(np.eye(3)[(random.random(n) > share).astype(int)] for share in (0.905, 0.9))

    needed = np.median([compared(*drawn(2000)).records_needed for _ in range(9)])
    assert needed == pytest.approx(6.18 * (0.905 * 0.095 + 0.9 * 0.1) / 0.005**2, rel=0.1)
