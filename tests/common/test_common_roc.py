import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import roc

examples = st.lists(st.tuples(st.sampled_from([-1.0, 0.0, 0.1, 0.5, 2.0]), st.booleans()), min_size=1, max_size=25)


def split(pairs):
    return np.array([score for score, _ in pairs]), np.array([positive for _, positive in pairs])


@given(examples)
def test_auc_is_the_share_of_pairs_in_the_right_order_and_half_of_the_ties(pairs):
    scores, positive = split(pairs)
    ours = roc.auc(scores, positive)
    compared = [(p > n) + (p == n) / 2 for p, n in itertools.product(scores[positive], scores[~positive])]
    assert ours == (pytest.approx(statistics.mean(compared)) if compared else None)


@given(examples.filter(lambda pairs: len({positive for _, positive in pairs}) == 2))
def test_the_area_under_the_points_is_the_auc_and_each_point_is_what_its_threshold_makes(pairs):
    scores, positive = split(pairs)
    misses, hits, thresholds = roc.curve(scores, positive)
    assert np.trapezoid(hits, misses) == pytest.approx(roc.auc(scores, positive))
    for miss, hit, threshold in zip(misses, hits, thresholds, strict=True):
        assert hit == pytest.approx((scores >= threshold)[positive].mean())
        assert miss == pytest.approx((scores >= threshold)[~positive].mean())


def test_a_long_curve_is_thinned_out_and_keeps_its_ends():
    random = np.random.default_rng(0)
    positive = random.random(5000) < 0.3
    misses, hits, _ = roc.curve(random.normal(positive), positive, points=50)
    assert len(hits) <= 52
    assert (misses[0], hits[0], misses[-1], hits[-1]) == (0, 0, 1, 1)
