"""Other machines, the same again, or enough: what follows each attempt."""

import itertools

import pytest
from google.cloud import aiplatform_v1 as v1
from hypothesis import given
from hypothesis import strategies as st

from components.train.backends.attempts import Again, Attempt, Bounds, Over, next_attempt
from components.train.backends.vertex_client import Ending, ending, exit_code
from components.train.cluster.cluster_file import Cluster, MachineSpec, Pool, Scheduling


@pytest.mark.parametrize(
    ("state", "code", "message", "expected"),
    [
        (
            "FAILED",
            9,
            "The replica workerpool0-0 exited with a non-zero status of 1.",
            Ending.FAILED,
        ),
        (
            "FAILED",
            9,
            "Resources are insufficient in region: us-east1. Try a different region.",
            Ending.STOCKOUT,
        ),
        ("FAILED", 8, "Out of machines", Ending.STOCKOUT),
        ("FAILED", 9, "The following quota metrics exceed quota limits: n1_cpus", Ending.STOCKOUT),
        ("FAILED", 14, "STOCKOUT: workerpool1-0 was preempted", Ending.STOCKOUT),
        ("EXPIRED", 4, "", Ending.STOCKOUT),
        ("FAILED", 13, "", Ending.LOST),
        ("FAILED", 3, "Internal error occurred for the current attempt.", Ending.LOST),
        (
            "FAILED",
            13,
            "The replica workerpool0-0 exited with a non-zero status of 1.",
            Ending.FAILED,
        ),
    ],
)
def test_job_error_maps_to_ending(state: str, code: int, message: str, expected: Ending):
    job = v1.CustomJob(state=f"JOB_STATE_{state}", error={"code": code, "message": message})
    assert ending(job) is expected


def test_exit_code_is_read_from_error():
    message = (
        "The replica workerpool1-3 ran out of memory and exited with a non-zero status of "
        "137(SIGKILL)."
    )
    assert exit_code(message) == 137
    assert exit_code("Internal error occurred for the current attempt") == 1


def cluster(choices: int = 1, replicas: int = 2, max_restarts: int = 5) -> Cluster:
    others = (MachineSpec(machine="n1-standard-4"),) * (choices - 1)
    pools = {"chief": Pool(machine="n1-standard-4", alternatives=others)}
    if replicas > 1:
        pools["worker"] = Pool(replicas=replicas - 1)
    scheduling = Scheduling(max_restarts=max_restarts)
    return Cluster(strategy="multi_worker_mirrored", scheduling=scheduling, **pools)


def attempts(words: str) -> list[Attempt]:
    """Parses words such as `0 stockout 5`: choice, ending (or exit code) and number of new steps."""
    earlier, step = [], -1
    for choice, how, steps in (word.split() for word in words.split(", ") if word):
        after = step + int(steps)
        earlier.append(
            Attempt(
                display_name="a",
                machines={},
                choice=int(choice),
                ending=Ending.FAILED if how.isdigit() else Ending(how),
                step_before=step,
                step_after=after,
                seconds=3600 * (int(steps) > 0),
                replicas=2,
                exit_code=int(how) if how.isdigit() else 3,
            )
        )
        step = after
    return earlier


def order_after(
    past: str, is_earlier: bool = False, choices: int = 3, **limits: float
) -> Again | Over:
    earlier = attempts(past)
    return next_attempt(
        earlier,
        Bounds(cluster=cluster(choices, max_restarts=2), **limits),
        len(earlier) * is_earlier,
    )


NO_PREEMPTIONS_LEFT = "no restart after preemptions is left (max_restarts: 2)"


@pytest.mark.parametrize(
    ("past", "why", "code"),
    [
        (
            "0 stockout 0, 1 stockout 0, 2 stockout 0",
            "no capacity for any of its 3 choices of machines",
            75,
        ),
        (
            "1 failed 9, 1 stockout 0, 2 stockout 0, 0 stockout 0",
            "no capacity for any of its 3 choices of machines",
            75,
        ),
        ("0 failed 0", "it failed and came no further than before", 3),
        ("0 2 9", "it would fail again", 2),
        ("0 lost 0, 0 lost 9, 0 lost 0", NO_PREEMPTIONS_LEFT, 3),
        ("0 stockout 9, 0 lost 0, 0 137 9", NO_PREEMPTIONS_LEFT, 137),
        ("0 cancelled 9", "cancelled", 143),
        ("0 stockout 0, 1 succeeded 9", "done", 0),
    ],
)
def test_no_attempt_follows(past: str, why: str, code: int):
    assert order_after(past, machine_hours=20) == Over(why=why, exit_code=code)


@pytest.mark.parametrize(
    ("past", "why", "code"),
    [
        (
            "0 failed 9, 0 failed 9, 0 failed 9",
            "no restart after errors is left (max_restarts: 2)",
            3,
        ),
        ("0 lost 0, 0 137 9, 0 stockout 9", NO_PREEMPTIONS_LEFT, 75),
    ],
)
def test_restarts_are_shared_by_commands(past: str, why: str, code: int):
    assert order_after(past) == order_after(past, is_earlier=True) == Over(why=why, exit_code=code)


@pytest.mark.parametrize(
    ("past", "choice"),
    [
        ("0 stockout 0, 1 stockout 0", 2),
        ("0 stockout 0, 1 stockout 9", 0),
        ("0 stockout 0, 1 failed 9", 1),
        ("0 stockout 0, 1 lost 9", 1),
        ("1 failed 9, 1 stockout 0, 2 stockout 0", 0),
        (
            "0 failed 9, 0 failed 9, 0 stockout 9, 0 stockout 9",
            0,
        ),  # Errors and preemptions count apart.
    ],
)
def test_next_attempt_takes_choice(past: str, choice: int):
    assert order_after(past).choice == choice


@pytest.mark.parametrize("past", ["1 failed 9, 1 failed 0", "0 cancelled 9", "0 2 9"])
def test_next_command_begins_anew(past: str):
    order = order_after(past, is_earlier=True, machine_hours=20)
    assert (order.choice, order.timeout_s) == (0, 9 * 3600)


@pytest.mark.parametrize(
    ("limits", "left_s"),
    [({}, None), ({"timeout_s": 5000.0}, 1400), ({"timeout_s": 7200.0, "machine_hours": 2.5}, 900)],
)
def test_least_limit_is_next_timeout(limits: dict[str, float], left_s: int | None):
    assert order_after("1 failed 9", **limits).timeout_s == left_s


@pytest.mark.parametrize("past", ["1 cancelled 9", "1 failed 9"])
@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"timeout_s": 3605.0}, "the time limit (scheduling.timeout) is used up: 3,600 of 3,605 s"),
        ({"machine_hours": 2.0}, "the machine-hours (--max-machine-hours) are used up: 2.00 of 2"),
    ],
)
def test_used_up_limit_is_named(limits: dict[str, float], why: str, past: str):
    assert order_after(past, **limits) == Over(why=why, exit_code=124)


def test_last_of_former_choices_is_gone():
    assert order_after("0 stockout 0, 1 stockout 0, 2 failed 9", choices=1).choice == 0


def has_new_steps(attempt: Attempt) -> bool:
    return attempt.step_after > attempt.step_before


@given(st.data())
def test_attempts_end_within_every_bound(data: st.DataObject):
    """Attempts of several commands end, and together stay within every bound, whatever happens."""
    replicas, choices, most = (data.draw(st.integers(low, 4)) for low in (1, 1, 0))
    hours, timeout_s = (data.draw(st.floats(0.1, 20)) * 3600 for _ in range(2))
    bounds = Bounds(
        cluster=cluster(choices, replicas, most), machine_hours=hours / 3600, timeout_s=timeout_s
    )
    past: list[Attempt] = []
    begun = 0  # Attempts of earlier commands.
    while isinstance(order := next_attempt(past, bounds, begun), Again):
        step = past[-1].step_after if past else -1
        attempt = Attempt(
            display_name="a",
            machines={},
            choice=order.choice,
            replicas=replicas,
            ending=data.draw(st.sampled_from([Ending.STOCKOUT, Ending.LOST, Ending.FAILED])),
            seconds=data.draw(st.floats(0, order.timeout_s)),
            step_before=step,
            step_after=step + data.draw(st.integers(0, 2)),
        )
        past.append(attempt)
        if has_new_steps(attempt) and data.draw(st.booleans()):
            begun = len(past)
        assert len(past) <= (2 * most + 2) * (choices + 1)
    for is_error in (True, False):
        charged = (
            has_new_steps(each) or each.ending is Ending.LOST
            for each in past
            if (each.ending is Ending.FAILED) is is_error
        )
        assert sum(charged) <= most + 1
    assert sum(each.seconds for each in past) * replicas <= hours + 1e-3
    assert sum(each.seconds for each in past) <= timeout_s + 1e-3
    for one, two in itertools.pairwise(past[begun:]):
        assert has_new_steps(one) or one.ending is not Ending.FAILED
        after_stockout = 0 if has_new_steps(one) else (one.choice + 1) % choices
        assert two.choice == (after_stockout if one.ending is Ending.STOCKOUT else one.choice)
