import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.train.supervision.restart_policy import Budget, Follows, decide, kind_of

SYNC, PS = "multi_worker_mirrored", "parameter_server"


@pytest.mark.parametrize(
    ("strategy", "role", "code", "follows"),
    [
        (SYNC, "worker", 1, "RESTART_ALL"),
        (SYNC, "worker", 0, "NOTHING"),
        (SYNC, "chief", 0, "DONE"),
        (SYNC, "evaluator", 143, "RESTART_ONE"),
        (PS, "worker", 137, "RESTART_ONE"),
        (PS, "worker", 143, "RESTART_ALL"),  # It has had all others save and leave.
        (PS, "chief", 1, "RESTART_ALL"),
        (PS, "ps", 137, "RESTART_ALL"),
    ],
)
def test_end_decides_restarts(strategy, role, code, follows):
    assert decide(role, strategy, code) is Follows[follows]


PREEMPTIONS = (129, 130, 137, 143)
CODES = st.sampled_from([1, 1, 139, *PREEMPTIONS])  # 139 is SIGSEGV.


@example(most=5, is_silent=False, ends=[(1, 1), (1, 0), (143, 0), (1, 0)])
@example(most=5, is_silent=False, ends=[(1, 2), (1, -2), (1, 1)])
@given(
    most=st.integers(0, 5),
    is_silent=st.booleans(),
    ends=st.lists(st.tuples(CODES, st.integers(-2, 2)), max_size=12),
)
def test_restarts_are_bounded(most, is_silent, ends):
    """Errors and preemptions count apart up to the bound; no job that gets on ends before it."""
    budget = Budget()
    step = furthest = row = 0
    counts = [0, 0]
    for i, (code, change) in enumerate(ends):
        step = max(0, step + change)
        is_further = i > 0 and step > furthest
        furthest = max(step, furthest)
        row = 0 if is_silent or is_further else row + (code != 143)
        noted = budget.noted(None if is_silent else step)
        budget, why = noted.charged(kind_of(code), code, most, reports=not is_silent)
        counts[code in PREEMPTIONS] += 1
        assert ("3 failures in a row" in why) is (row == 3)
        assert bool(why) is (row == 3 or max(counts) > most)
        if why:
            return
        assert [budget.errors, budget.preemptions] == counts
        assert min(row, 1) / 2 <= budget.backoff_s <= 5 * row
