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
