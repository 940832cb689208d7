from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.train.supervision.restart_policy import Budgets, Kind, Progress, kind_of, restarts_all


@pytest.mark.parametrize(
    ("code", "frozen", "kind"),
    [
        (1, False, Kind.ERROR),
        (2, False, Kind.USER_ERROR),
        (143, False, Kind.PREEMPTION),  # saved and left
        (137, False, Kind.PREEMPTION),  # SIGKILL
        (137, True, Kind.ERROR),  # ours, of a frozen one
        (139, False, Kind.ERROR),  # SIGSEGV is the program's own fault
        (255, False, Kind.ERROR),  # ssh lost the connection
    ],
)
def test_kind_of_death(code: int, frozen: bool, kind: Kind):
    assert kind_of(code, frozen=frozen) is kind


@pytest.mark.parametrize(
    ("strategy", "role", "code", "everyone"),
    [
        ("multi_worker_mirrored", "worker", 1, True),
        ("multi_worker_mirrored", "chief", 1, True),
        ("parameter_server", "worker", 1, False),
        ("parameter_server", "worker", 143, True),
        ("parameter_server", "chief", 1, True),
        ("parameter_server", "ps", 1, True),
        ("parameter_server", "evaluator", 1, False),
        ("one_device", "evaluator", 143, False),
    ],
)
def test_who_starts_again(strategy: str, role: str, code: int, everyone: bool):
    assert restarts_all(strategy, role, code) is everyone


@given(st.integers(0, 6), st.lists(st.sampled_from([Kind.ERROR, Kind.PREEMPTION]), max_size=30))
def test_each_budget_bounds_its_own_kind_while_the_job_gets_on(most: int, deaths: list[Kind]):
    budgets = Budgets(most)
    counted = {Kind.ERROR: 0, Kind.PREEMPTION: 0}
    for kind in deaths:
        counted[kind] += 1
        assert bool(budgets.charge(kind, 1, new_step=True)) == (counted[kind] > most)
        assert budgets.backoff_s == 0
    assert budgets.used == {kind: min(count, most) for kind, count in counted.items()}


def test_failures_without_a_new_step_wait_longer_and_the_third_is_the_last():
    budgets = Budgets(100)
    waits = []
    for _ in range(2):
        assert not budgets.charge(Kind.ERROR, 1, new_step=False)
        waits.append(budgets.backoff_s)
    assert 0 < waits[0] < waits[1] <= 5
    assert "3 failures in a row" in budgets.charge(Kind.PREEMPTION, 137, new_step=False)


def test_new_step_begins_the_row_anew_and_saving_and_leaving_is_no_failure():
    budgets = Budgets(100)
    for new_step, code in [(False, 1), (False, 1), (True, 1), (False, 1), (False, 143), (False, 143), (False, 1)]:
        assert not budgets.charge(Kind.ERROR, code, new_step=new_step)
    assert budgets.charge(Kind.ERROR, 1, new_step=False)


def test_progress_counts_only_steps_that_were_never_made_before():
    progress = Progress(told=True)
    assert not progress.new_step()
    progress.note(500)  # where it resumed
    assert not progress.new_step()
    progress.note(510)
    assert progress.new_step()
    for step in (500, 505, 510, None):
        progress.note(step)
    assert not progress.new_step()
    assert progress.step == 510


def test_program_that_never_tells_of_steps_is_believed_to_get_on():
    assert Progress(told=False).new_step()
