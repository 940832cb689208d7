import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.convert.report import drift
from components.convert.report.accumulators import Categories, Numbers
from components.convert.writing.byte_strings import Strings

histograms = st.lists(st.integers(0, 1000), min_size=1, max_size=25).filter(any).map(lambda h: dict(enumerate(h)))


def tallied(empty: Numbers, values, missing: np.ndarray | None = None) -> Numbers:
    empty.add(values, missing)
    return empty


def distance(train: Numbers, other: Numbers) -> float | None:
    return drift.distance(train, other, train.edges([train, other]))


def categories(values: list[bytes]) -> Categories:
    return tallied(Categories("string"), Strings.of(values))


@given(p=histograms, q=histograms)
def test_the_numeric_measure_is_the_jensen_shannon_divergence(p, q):
    a, b = (np.array([h.get(key, 0) for key in range(25)], float) for h in (p, q))
    a, b = a / a.sum(), b / b.sum()

    def entropy(shares):
        return -sum(share * np.log2(share) for share in shares if share)

    assert drift.numeric(p, q) == pytest.approx(entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2, abs=2e-6)
    assert drift.categorical(p, q) == pytest.approx(abs(a - b).max(), abs=1e-6)


def test_a_shifted_feature_drifts_and_an_equal_one_does_not():
    fares = np.random.default_rng(0).gamma(2, 5, 5000).astype(np.float32)
    train = tallied(Numbers(), fares)
    for other, missing, least, most in (
        (fares[::-1], None, 0, 0),
        (fares[:2500], None, 1e-6, 0.01),
        (fares * np.float32(1.5), None, 0.05, 0.3),
        (fares + np.float32(100), None, 0.9, 1),
        (fares, np.arange(5000) < 2500, 0.25, 1),  # missing values are drift too
    ):
        assert least <= distance(train, tallied(Numbers(), other, missing)) <= most


def test_a_new_category_drifts_by_its_share_and_without_examples_there_is_no_distance():
    train, empty = categories([b"Cash"] * 4 + [b"Card"]), categories([])
    assert distance(train, categories([b"Cash"] * 2 + [b"Phone"] * 2)) == 0.5
    assert distance(train, empty) is None and distance(empty, train) is None
