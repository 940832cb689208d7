"""Other machines, the same again, or enough: what follows each attempt."""

import itertools

import pytest
from google.cloud import aiplatform_v1 as v1
from hypothesis import given
from hypothesis import strategies as st

from components.train.backends.attempts import Again, Attempt, Bounds, Over, next_attempt
from components.train.backends.vertex_client import Ending, ending, exit_code
from components.train.cluster.cluster_file import Cluster, MachineSpec, Pool, Scheduling
from components.train.supervision.restart_policy import Kind, kind_of

# By state, code and text of a job.
ENDINGS = {
    ("JOB_STATE_RUNNING", 0, ""): None,
    ("JOB_STATE_SUCCEEDED", 0, ""): Ending.SUCCEEDED,
    ("JOB_STATE_CANCELLED", 1, "CANCELED"): Ending.CANCELLED,
    ("JOB_STATE_FAILED", 9, "The replica workerpool0-0 exited with a non-zero status of 1."): Ending.FAILED,
    ("JOB_STATE_FAILED", 9, "Resources are insufficient in region: us-east1. Try a different region."): Ending.STOCKOUT,
    ("JOB_STATE_FAILED", 8, "Out of machines"): Ending.STOCKOUT,
    ("JOB_STATE_FAILED", 8, "The following quota metrics exceed quota limits: n1_cpus"): Ending.STOCKOUT,
    ("JOB_STATE_FAILED", 14, "STOCKOUT: workerpool1-0 was preempted"): Ending.STOCKOUT,
    ("JOB_STATE_EXPIRED", 4, ""): Ending.STOCKOUT,
    ("JOB_STATE_FAILED", 13, ""): Ending.LOST,
    ("JOB_STATE_FAILED", 3, "Internal error occurred for the current attempt."): Ending.LOST,
    ("JOB_STATE_FAILED", 13, "The replica workerpool0-0 exited with a non-zero status of 1."): Ending.FAILED,
}


@pytest.mark.parametrize(("ended", "as_what"), ENDINGS.items())
def test_a_lack_of_machines_is_told_from_a_failure(ended: tuple[str, int, str], as_what: Ending | None):
    state, code, message = ended
    job = v1.CustomJob(state=v1.JobState[state], error={"code": code, "message": message})
    assert ending(job) is as_what


def test_exit_code_is_that_of_the_replica_that_is_blamed():
    said = "The replica workerpool1-3 ran out of memory and exited with a non-zero status of 137(SIGKILL)."
    assert (exit_code(said), exit_code("Internal error occurred for the current attempt"), exit_code("")) == (137, 1, 1)


def cluster(choices: int = 1, replicas: int = 2, max_restarts: int = 5) -> Cluster:
    others = (MachineSpec(machine="n1-standard-4"),) * (choices - 1)
    pools = {"chief": Pool(machine="n1-standard-4", alternatives=others)}
    if replicas > 1:
        pools["worker"] = Pool(replicas=replicas - 1)
    scheduling = Scheduling(max_restarts=max_restarts)
    return Cluster(strategy="multi_worker_mirrored", scheduling=scheduling, **pools)


def attempts(words: str) -> list[Attempt]:
    """From words such as `0 stockout 5`: choice, ending (or exit code) and how many steps it came further."""
    made, step = [], -1
    for choice, how, steps in (word.split() for word in words.split(", ") if word):
        after = step + int(steps)
        made.append(
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
    return made


# By what happened, the next choice and its hours, or what is said and the exit code.
CASES = {
    "": (0, 10),
    "0 stockout 0": (1, 10),
    "0 stockout 0, 1 stockout 0": (2, 10),
    "0 stockout 0, 1 stockout 0, 2 stockout 0": ("no capacity for any of its 3 choices", 75),
    "0 stockout 0, 1 stockout 9": (0, 9),
    "0 stockout 0, 1 failed 9": (1, 9),
    "1 failed 9, 1 stockout 0, 2 stockout 0": (0, 9),
    "1 failed 9, 1 stockout 0, 2 stockout 0, 0 stockout 0": ("no capacity", 75),
    "0 failed 0": ("came no further", 3),
    "0 2 9": ("it would fail again", 2),
    "0 lost 0, 0 lost 0": (0, 10),
    "0 lost 0, 0 lost 9, 0 lost 0": ("no restart after preemptions is left (max_restarts: 2)", 3),
    "0 stockout 0, 1 lost 9": (1, 9),
    "0 failed 9, 0 failed 9, 0 stockout 9, 0 stockout 9": (0, 6),
    "0 failed 9, 0 failed 9, 0 failed 9": ("no restart after errors is left (max_restarts: 2)", 3),
    "0 stockout 9, 0 stockout 9, 0 stockout 9": ("no restart after preemptions is left (max_restarts: 2)", 75),
    "0 stockout 9, 0 lost 0, 0 137 9": ("no restart after preemptions is left (max_restarts: 2)", 137),
    "0 cancelled 9": ("cancelled", 143),
    "0 stockout 0, 1 succeeded 9": ("done", 0),
}


@pytest.mark.parametrize(("happened", "follows"), CASES.items())
def test_what_follows(happened: str, follows: tuple):
    order = next_attempt(attempts(happened), Bounds(cluster=cluster(choices=3, max_restarts=2), machine_hours=20))
    if isinstance(order, Again):
        assert follows == (order.choice, order.timeout_s / 3600)
    else:
        assert follows[0] in order.why and order.exit_code == follows[1]


# By what bounds it, the seconds that are left after an hour of two machines on the second choice.
LEFT = [
    ({}, None),
    ({"timeout_s": 5000.0}, 1400),
    ({"machine_hours": 5.0}, 5400),
    ({"timeout_s": 7200.0, "machine_hours": 2.5}, 900),
    ({"timeout_s": 3605.0}, "(scheduling.timeout) is used up: 3,600 of 3,605 s"),
    ({"machine_hours": 2.0}, "(--max-machine-hours) are used up: 2.00 of 2"),
]


@pytest.mark.parametrize(("bounds", "left"), LEFT)
@pytest.mark.parametrize("how", ["stockout", "failed", "cancelled"])
def test_the_least_of_all_limits_is_the_next_time_limit_and_is_named_when_it_is_used_up(bounds, left, how: str):
    order = next_attempt(attempts(f"1 {how} 9"), Bounds(cluster=cluster(choices=2), **bounds))
    if isinstance(left, str):
        assert left in order.why and order.exit_code == 124
    elif how == "cancelled":
        assert order == Over(why="cancelled", exit_code=143)
    else:
        assert order.timeout_s == left


# By attempts of an earlier command, what a new one begins with.
BEGINNINGS = {
    "1 failed 9, 1 failed 0": (0, 9),
    "0 cancelled 9": (0, 9),
    "0 2 9": (0, 9),
    "0 failed 9, 0 failed 9, 0 failed 9": ("no restart after errors is left (max_restarts: 2)", 3),
    "0 lost 0, 0 137 9, 0 stockout 9": ("no restart after preemptions is left (max_restarts: 2)", 75),
}


@pytest.mark.parametrize(("before", "begins"), BEGINNINGS.items())
def test_limits_hold_for_next_command(before: str, begins: tuple):
    bounds = Bounds(cluster=cluster(choices=2, max_restarts=2), machine_hours=20)
    earlier = attempts(before)
    order = next_attempt(earlier, bounds, len(earlier))
    if isinstance(order, Again):
        assert begins == (order.choice, order.timeout_s / 3600)
    else:
        assert (order.why, order.exit_code) == begins


def test_last_of_former_choices_is_gone():
    order = next_attempt(attempts("0 stockout 0, 1 stockout 0, 2 failed 9"), Bounds(cluster=cluster()))
    assert isinstance(order, Again) and order.choice == 0


def further(attempt: Attempt) -> bool:
    return attempt.step_after > attempt.step_before


def kind_of_attempt(attempt: Attempt) -> Kind:
    return kind_of(attempt.exit_code) if attempt.ending is Ending.FAILED else Kind.PREEMPTION


@given(st.data())
def test_whatever_happens_it_ends_and_stays_within_every_bound(data: st.DataObject):
    """Whenever commands end and others go on, together they stay within every bound."""
    replicas, choices, most = (data.draw(st.integers(low, 4)) for low in (1, 1, 0))
    hours, timeout_s = (data.draw(st.none() | st.floats(0.1, 20)) for _ in range(2))
    bounds = Bounds(
        cluster=cluster(choices, replicas, most),
        machine_hours=hours,
        timeout_s=None if timeout_s is None else timeout_s * 3600,
    )
    made: list[Attempt] = []
    begun = 0  # Attempts of commands before the one that goes on.
    while isinstance(order := next_attempt(made, bounds, begun), Again):
        step = made[-1].step_after if made else -1
        # No longer than it was allowed to.
        ran = data.draw(st.floats(0, 100_000 if order.timeout_s is None else order.timeout_s))
        after = step + data.draw(st.integers(0, 2))
        how = data.draw(st.sampled_from([Ending.STOCKOUT, Ending.LOST, Ending.FAILED]))
        shape = {"seconds": ran, "replicas": replicas, "step_before": step, "step_after": after}
        made.append(Attempt(display_name="a", machines={}, choice=order.choice, ending=how, **shape))
        if after > step and data.draw(st.booleans()):
            begun = len(made)
        assert len(made) <= (2 * most + 2) * (choices + 1)
    assert order.exit_code
    for kind in (Kind.ERROR, Kind.PREEMPTION):
        charged = (further(each) or each.ending is Ending.LOST for each in made if kind_of_attempt(each) is kind)
        assert sum(charged) <= most + 1
    assert sum(each.machine_hours for each in made) <= (hours or 1e9) + 1e-6
    assert sum(each.seconds for each in made) <= (timeout_s or 1e9) * 3600 + 1e-6
    for one, two in itertools.pairwise(made[begun:]):
        assert further(one) or one.ending is not Ending.FAILED
        expected = 0 if further(one) else (one.choice + 1) % choices
        assert two.choice == (expected if one.ending is Ending.STOCKOUT else one.choice)
