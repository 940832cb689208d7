import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.train.supervision.restart_policy import Death, Gone, Kind, Order, State, Stop, decide

SYNC, PS = "multi_worker_mirrored", "parameter_server"
NAMES = ("chief/0", "worker/0", "worker/1", "ps/0", "evaluator/0")


def state(strategy: str = SYNC, **changes: object) -> State:
    first = State(names=NAMES, strategy=strategy, max_restarts=5, reports=True)
    return dataclasses.replace(first, **changes)


def death(replica: str, exit_code: int, **changes: object) -> Death:
    return Death(replica=replica, exit_code=exit_code, **changes)


@pytest.mark.parametrize(
    ("code", "frozen", "kind"),
    [
        (1, "", Kind.ERROR),
        (2, "", Kind.USER_ERROR),
        (143, "", Kind.PREEMPTION),  # saved and left
        (137, "", Kind.PREEMPTION),  # SIGKILL
        (137, "stopped", Kind.ERROR),  # ours, of a frozen one
        (139, "", Kind.ERROR),  # SIGSEGV is the program's own fault
        (255, "", Kind.ERROR),  # ssh lost the connection
    ],
)
def test_kind_of_death(code: int, frozen: str, kind: Kind):
    assert death("worker/0", code, frozen=frozen).kind is kind


STOPPED = death("worker/1", 137, frozen="stopped")
PENDING = death("chief/0", 1)
ALONE, ALL, SAVING, SERVING = Stop.NOBODY, Stop.ALL, Stop.ALL_SAVING, Stop.SERVING
DEATHS = [
    # strategy, who was to blame before, the death; who is stopped, who is to blame then
    (SYNC, None, death("worker/0", 1), ALL, death("worker/0", 1)),
    (SYNC, None, death("worker/0", 143), SAVING, death("worker/0", 143)),
    (SYNC, None, death("worker/0", 0), ALONE, None),
    (SYNC, None, death("chief/0", 0), SERVING, None),
    (SYNC, None, death("worker/0", 1, stopped="worker/1"), ALL, STOPPED),
    (SYNC, None, death("worker/0", 137, stopped="worker/1"), ALL, death("worker/0", 137, stopped="worker/1")),
    (SYNC, None, STOPPED, ALL, STOPPED),
    (SYNC, None, death("evaluator/0", 143), ALONE, None),
    (PS, None, death("worker/0", 1), ALONE, None),
    (PS, None, death("worker/0", 137, frozen="silent"), ALONE, None),
    (PS, None, death("worker/0", 143), SAVING, death("worker/0", 143)),
    (PS, None, death("chief/0", 1), ALL, death("chief/0", 1)),
    (PS, None, death("ps/0", 137), ALL, death("ps/0", 137)),
    (SYNC, PENDING, death("worker/0", 130, signalled=True), ALONE, PENDING),
    (SYNC, PENDING, death("evaluator/0", 137), ALONE, PENDING),
    (SYNC, PENDING, death("worker/0", 1), ALONE, PENDING),
    (SYNC, PENDING, death("worker/0", 137), ALONE, death("worker/0", 137)),  # Its client was late to tell.
    (SYNC, STOPPED, death("worker/0", 137), ALONE, STOPPED),
    (SYNC, death("chief/0", 143), death("worker/0", 137), ALONE, death("chief/0", 143)),
    (SYNC, None, death("chief/0", 137, signalled=True), ALONE, None),
]


@pytest.mark.parametrize(("strategy", "before", "news", "stop", "blame"), DEATHS)
def test_who_is_stopped_and_blamed(strategy: str, before: Death | None, news: Death, stop: Stop, blame: Death | None):
    after, order = decide(state(strategy, blame=before), news)
    assert (order.stop, after.blame) == (stop, blame)
    killed = news if stop is ALONE else blame
    assert order.kill == (killed if killed and killed.frozen else None)
    assert after.over == (stop is SERVING)


def charged(now: State, news: Death, step: int | None = None) -> tuple[State, Order]:
    now, _ = decide(now.noted(news.replica, step), news)
    return decide(now, Gone(replica=news.replica, last=True))


def test_each_count_bounds_its_own_kind():
    for name in ("chief/0", "evaluator/0"):
        now = state(max_restarts=2).noted(name, 0)
        for step, code in enumerate([1, 137, 143, 1], 1):
            now, order = charged(now, death(name, code), step)
            assert not order.why and not order.budget.backoff_s
        assert (order.budget.errors, order.budget.preemptions) == (2, 2)
        assert "no restart after errors is left" in charged(now, death(name, 1), 9)[1].why
        assert "no restart after preemptions is left" in charged(now, death(name, 137), 9)[1].why
        assert charged(now, death(name, 1), 9)[0].over == (name == "chief/0")


def test_third_failure_without_step_is_last():
    now, waits = state(max_restarts=100), []
    for _ in range(2):
        now, order = charged(now, death("chief/0", 1))
        waits.append(order.budget.backoff_s)
    assert 0 < waits[0] < waits[1] <= 5
    assert "3 failures in a row" in charged(now, death("chief/0", 137))[1].why
    assert charged(state(), death("chief/0", 2))[1].why == "it would fail again"


def test_new_step_begins_the_row_anew():
    now = state(max_restarts=100)
    for step, code in [(500, 1), (500, 1), (501, 1), (490, 1), (None, 143), (501, 143), (501, 1)]:
        now, order = charged(now, death("chief/0", code), step)
        assert not order.why, (step, code)
    assert charged(now, death("chief/0", 1))[1].why


def test_program_without_steps_gets_on():
    now = state(reports=False, max_restarts=4)
    for _ in range(4):
        now, order = charged(now, death("chief/0", 1))
        assert not order.why
    assert "no restart after errors is left (max_restarts: 4)" in charged(now, death("chief/0", 1))[1].why


WHAT = st.sampled_from(["die", "die", "die", "freeze", "step"])
CODES = st.sampled_from([0, 1, 1, 2, 129, 130, 137, 139, 143])
HAPPENINGS = st.lists(st.tuples(WHAT, st.sampled_from(NAMES), CODES, st.integers(0, 50)), max_size=60)


@given(strategy=st.sampled_from([SYNC, PS]), most=st.integers(0, 3), reports=st.booleans(), what=HAPPENINGS)
def test_signalled_are_never_blamed_and_job_ends(
    strategy: str, most: int, reports: bool, what: list[tuple[str, str, int, int]]
):
    now, blamed = state(strategy, max_restarts=most, reports=reports), []
    running, signalled = set(NAMES), set()

    def hear(news: Death | Gone) -> None:
        nonlocal now
        now, order = decide(now, news)
        if order.kill:
            signalled.add(order.kill.replica)
        if order.stop is not Stop.NOBODY:
            signalled.update(running)
        if order.answered:
            blamed.append(order.answered)
            assert bool(order.start) != bool(order.why)
            assert not (now.over and order.answered.replica == "evaluator/0")
        assert not running.intersection(order.start)
        running.update(order.start)
        signalled.difference_update(order.start)

    def die(name: str, code: int) -> None:
        news = death(name, code, signalled=name in signalled)
        hear(news)
        running.discard(name)
        hear(Gone(replica=name, last=not running))

    always = [("die", name, 1, 0) for _ in range(6 * (most + 1)) for name in NAMES]  # In the end, everything fails.
    for kind, name, code, step in [*what, *always]:
        if name not in running:
            continue
        if kind == "step":
            now = now.noted(name, step)
        elif kind == "freeze":
            hear(death(name, 137, frozen="silent", signalled=name in signalled))
        else:
            die(name, code)
    assert now.over and not running
    assert not [each for each in blamed if each.signalled]
    for owner, budget in (("evaluator", now.evaluator), ("job", now.job)):
        mine = [each for each in blamed if each.replica.startswith("evaluator/") == (owner == "evaluator")]
        assert max(budget.errors, budget.preemptions) <= most
        assert budget.errors + budget.preemptions in (len(mine), len(mine) - 1)
