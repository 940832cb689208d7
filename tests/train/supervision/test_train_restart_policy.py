import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.train.supervision.restart_policy import Budget, Follows, decide, kind_of

SYNC, PS = "multi_worker_mirrored", "parameter_server"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, "error"),
        (2, "user error"),
        (143, "preemption"),
        (137, "preemption"),
        (139, "error"),
    ],  # 139 is SIGSEGV.
)
def test_exit_code_has_kind(code: int, kind: str):
    assert kind_of(code) == kind


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
def test_end_decides_restarts(strategy: str, role: str, code: int, follows: str):
    assert decide(role, strategy, code) is Follows[follows]


def charged(
    budget: Budget, code: int, step: int | None = None, most: int = 100, **options: bool
) -> tuple[Budget, str]:
    return budget.noted(step).charged(kind_of(code), code, most, **options)


def test_errors_and_preemptions_count_apart():
    budget = Budget().noted(0)
    for step, code in enumerate([1, 137, 143, 1], 1):
        budget, why = charged(budget, code, step, most=2)
        assert not why and not budget.backoff_s
    assert charged(budget, 1, 9, most=2)[1] == "no restart after errors is left (max_restarts: 2)"
    assert (
        charged(budget, 137, 9, most=2)[1]
        == "no restart after preemptions is left (max_restarts: 2)"
    )


def test_third_failure_without_step_is_last():
    first, _ = charged(Budget(), 1)
    second, _ = charged(first, 1)
    assert 0 < first.backoff_s < second.backoff_s <= 5
    assert "3 failures in a row" in charged(second, 137)[1]


def test_user_error_is_not_restarted():
    assert charged(Budget(), 2)[1] == "it would fail again"


def test_new_step_resets_row():
    budget = Budget()
    for step, code in [(500, 1), (500, 1), (501, 1), (490, 1), (None, 143), (501, 143), (501, 1)]:
        budget, why = charged(budget, code, step)
        assert not why, (step, code)
    assert charged(budget, 1)[1]


def test_program_without_steps_restarts():
    budget = Budget()
    for _ in range(4):
        budget, why = charged(budget, 1, most=4, reports=False)
        assert not why
    assert "no restart after errors is left" in charged(budget, 1, most=4, reports=False)[1]


CODES = st.sampled_from([1, 1, 129, 130, 137, 139, 143])


@given(
    most=st.integers(0, 3),
    reports=st.booleans(),
    ends=st.lists(st.tuples(CODES, st.integers(0, 50)), max_size=30),
)
def test_restarts_are_bounded(most: int, reports: bool, ends: list[tuple[int, int]]):
    """No count exceeds its bound, and a job that always fails ends."""
    budget = Budget()
    for num_restarts, (code, step) in enumerate([*ends, *[(1, 0)] * (most + 1)], 1):
        budget, why = charged(budget, code, step, most=most, reports=reports)
        if why:
            return
        assert budget.errors + budget.preemptions == num_restarts
        assert max(budget.errors, budget.preemptions) <= most
    pytest.fail("it never ends")
