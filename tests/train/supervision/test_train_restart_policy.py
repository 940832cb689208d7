import pytest
from hypothesis import given
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


def charged(budget, code, step=None, most=100, **options):
    return budget.noted(step).charged(kind_of(code), code, most, **options)


def test_third_failure_without_step_is_last():
    first, _ = charged(Budget(), 1)
    second, _ = charged(first, 1)
    assert 0 < first.backoff_s < second.backoff_s <= 5
    assert "3 failures in a row" in charged(second, 137)[1]


def test_new_step_resets_row():
    budget = Budget()
    for step, code in [(500, 1), (500, 1), (501, 1), (490, 1), (None, 143), (501, 143), (501, 1)]:
        budget, why = charged(budget, code, step)
        assert not why, (step, code)
    assert charged(budget, 1)[1]


PREEMPTIONS = (129, 130, 137, 143)
CODES = st.sampled_from([1, 1, 139, *PREEMPTIONS])  # 139 is SIGSEGV.


@given(
    most=st.integers(0, 5),
    is_silent=st.booleans(),
    ends=st.lists(st.tuples(CODES, st.integers(0, 3)), max_size=12),
)
def test_restarts_are_bounded(most, is_silent, ends):
    """Errors and preemptions count apart up to the bound; no job that gets on ends before it."""
    budget = Budget()
    step = 0
    counts = [0, 0]
    for code, new_steps in ends:
        step += new_steps
        reported = None if is_silent else step
        budget, why = charged(budget, code, reported, most, reports=not is_silent)
        counts[code in PREEMPTIONS] += 1
        if why:
            assert max(counts) > most or "in a row" in why
            assert not (is_silent and "in a row" in why)
            return
        assert [budget.errors, budget.preemptions] == counts
        assert max(counts) <= most
