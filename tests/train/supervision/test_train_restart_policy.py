import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.train.supervision.restart_policy import Budget, Follows, Kind, decide, kind_of

SYNC, PS = "multi_worker_mirrored", "parameter_server"
ONE, ALL = Follows.RESTART_ONE, Follows.RESTART_ALL


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, Kind.ERROR),
        (2, Kind.USER_ERROR),
        (143, Kind.PREEMPTION),  # Saved and left.
        (137, Kind.PREEMPTION),  # SIGKILL.
        (139, Kind.ERROR),  # SIGSEGV is the program's own fault.
        (255, Kind.ERROR),
    ],
)
def test_kind_of_exit_code(code: int, kind: Kind):
    assert kind_of(code) is kind


@pytest.mark.parametrize(
    ("strategy", "role", "code", "follows"),
    [
        (SYNC, "worker", 1, ALL),
        (SYNC, "worker", 143, ALL),
        (SYNC, "worker", 0, Follows.NOTHING),
        (SYNC, "chief", 0, Follows.DONE),
        (SYNC, "chief", 1, ALL),
        (SYNC, "evaluator", 143, ONE),
        (PS, "worker", 1, ONE),
        (PS, "worker", 137, ONE),
        (PS, "worker", 143, ALL),  # It has had all others save and leave.
        (PS, "chief", 1, ALL),
        (PS, "ps", 137, ALL),
        (PS, "ps", 0, Follows.NOTHING),
    ],
)
def test_what_follows_an_end(strategy: str, role: str, code: int, follows: Follows):
    assert decide(role, strategy, code) is follows


def charged(budget: Budget, code: int, step: int | None = None, most: int = 100, **options: bool) -> tuple[Budget, str]:
    if step is not None:
        budget = budget.noted(step)
    return budget.charged(kind_of(code), code, most, **options)


def test_each_count_bounds_its_own_kind():
    budget = Budget().noted(0)
    for step, code in enumerate([1, 137, 143, 1], 1):
        budget, why = charged(budget, code, step, most=2)
        assert not why and not budget.backoff_s
    assert (budget.errors, budget.preemptions) == (2, 2)
    assert charged(budget, 1, 9, most=2)[1] == "no restart after errors is left (max_restarts: 2)"
    assert charged(budget, 137, 9, most=2)[1] == "no restart after preemptions is left (max_restarts: 2)"


def test_third_failure_without_step_is_last():
    budget, waits = Budget(), []
    for _ in range(2):
        budget, _ = charged(budget, 1)
        waits.append(budget.backoff_s)
    assert 0 < waits[0] < waits[1] <= 5
    assert "3 failures in a row" in charged(budget, 137)[1]
    assert charged(Budget(), 2)[1] == "it would fail again"


def test_new_step_begins_the_row_anew():
    budget = Budget()
    for step, code in [(500, 1), (500, 1), (501, 1), (490, 1), (None, 143), (501, 143), (501, 1)]:
        budget, why = charged(budget, code, step)
        assert not why, (step, code)
    assert charged(budget, 1)[1]


def test_program_without_steps_gets_on():
    budget = Budget()
    for _ in range(4):
        budget, why = charged(budget, 1, most=4, reports=False)
        assert not why
    assert "no restart after errors is left (max_restarts: 4)" in charged(budget, 1, most=4, reports=False)[1]


CODES = st.sampled_from([1, 1, 129, 130, 137, 139, 143])


@given(most=st.integers(0, 3), reports=st.booleans(), ends=st.lists(st.tuples(CODES, st.integers(0, 50)), max_size=30))
def test_restarts_are_bounded(most: int, reports: bool, ends: list[tuple[int, int]]):
    """Whatever happens, neither count exceeds its bound, and all that always fails ends."""
    budget = Budget()
    for num_restarts, (code, step) in enumerate([*ends, *[(1, 0)] * (most + 1)], 1):
        budget, why = charged(budget, code, step, most=most, reports=reports)
        if why:
            return
        assert budget.errors + budget.preemptions == num_restarts
        assert max(budget.errors, budget.preemptions) <= most
    pytest.fail("it never ends")
