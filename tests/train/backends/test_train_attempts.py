"""Other machines, the same again, or enough: what follows each attempt."""

import itertools

import pytest
from google.cloud import aiplatform_v1 as v1
from hypothesis import given, settings
from hypothesis import strategies as st

from components.train.backends.attempts import Again, Attempt, Bounds, next_attempt
from components.train.backends.vertex_client import Ending, ending
from components.train.cluster.cluster_file import Cluster

NON_ZERO = "The replica workerpool0-0 exited with a non-zero status of 1."


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        (9, NON_ZERO, Ending.FAILED),
        (8, "Out of machines", Ending.STOCKOUT),
        (9, "The following quota metrics exceed quota limits: n1_cpus", Ending.STOCKOUT),
        (14, "STOCKOUT: workerpool1-0 was preempted", Ending.STOCKOUT),
        *((code, "", Ending.LOST) for code in (10, 13, 14)),
        (3, "Internal error occurred for the current attempt.", Ending.LOST),
        (13, NON_ZERO, Ending.FAILED),
        (0, "429 Quota exceeded for limit 'X requests per minute'", Ending.LOST),
    ],
)
def test_job_error_maps_to_ending(code, message, expected):
    job = v1.CustomJob(state="JOB_STATE_FAILED", error={"code": code, "message": message})
    assert ending(job) is expected


def test_expired_job_had_no_machines():
    assert ending(v1.CustomJob(state="JOB_STATE_EXPIRED")) is Ending.STOCKOUT
    assert ending(v1.CustomJob(state="JOB_STATE_PARTIALLY_SUCCEEDED")) is Ending.FAILED


def cluster(choices, replicas, max_restarts):
    machine = {"machine": "n1-standard-4"}
    return Cluster(
        strategy="multi_worker_mirrored",
        scheduling={"max_restarts": max_restarts},
        chief=machine | {"alternatives": [machine] * (choices - 1)},
        worker={"replicas": replicas - 1},
    )


def attempt(choice, how, before, new_steps, **fields):
    steps = {"step_before": before, "step_after": before + new_steps}
    return Attempt(display_name="a", machines={}, choice=choice, ending=how, **steps, **fields)


def order_after(past, num_earlier=0, **limits):
    """Returns what follows `0 stockout 5` and the like: choice, ending or exit code, new steps."""
    attempts = []
    step = -1
    for choice, how, steps in (words.split() for words in past.split(", ")):
        ended = Ending.FAILED if how.isdigit() else Ending(how)
        fields = {"seconds": 3600 * (steps != "0"), "exit_code": int(how) if how.isdigit() else 3}
        attempts.append(attempt(int(choice), ended, step, int(steps), replicas=2, **fields))
        step += int(steps)
    return next_attempt(attempts, Bounds(cluster=cluster(3, 2, 2), **limits), num_earlier)


@pytest.mark.parametrize(
    ("past", "limits", "why", "code"),
    [
        ("0 stockout 0, 1 stockout 0, 2 stockout 0", {}, "its 3 choices", 75),
        ("0 failed 0", {}, "came no further", 3),
        ("0 failed 9, 0 failed 9, 0 failed 9", {}, "after errors is left", 3),
        ("0 2 9", {}, "would fail again", 2),
        ("0 stockout 9, 0 lost 0, 0 137 9", {}, "after preemptions is left", 137),
        ("0 lost 0, 0 137 9, 0 stockout 9", {}, "after preemptions is left", 75),
        ("0 stockout 0, 1 succeeded 9", {"machine_hours": 2}, "done", 0),
        ("1 cancelled 9", {"timeout_s": 3605}, "used up: 3,600 of 3,605 s", 124),
        ("1 failed 9", {"machine_hours": 2}, "used up: 2.00 of 2", 124),
    ],
)
def test_no_attempt_follows(past, limits, why, code):
    over = order_after(past, **limits)
    assert over.exit_code == code and why in over.why


@pytest.mark.parametrize(
    ("past", "num_earlier"), [("1 failed 9, 1 failed 0", 2), ("0 cancelled 9", 1), ("0 2 9", 1)]
)
def test_next_command_begins_anew(past, num_earlier):
    order = order_after(past, num_earlier, machine_hours=20)
    assert (order.choice, order.timeout_s) == (0, 9 * 3600)


def has_new_steps(attempt):
    return attempt.step_after > attempt.step_before


@settings(max_examples=100)
@given(st.data())
def test_attempts_end_within_every_bound(data):
    """Attempts of several commands end, and together stay within every bound, whatever happens."""
    replicas, choices, most = (data.draw(st.integers(low, 4)) for low in (2, 1, 0))
    hours, timeout_s = (data.draw(st.floats(0.1, 20)) for _ in range(2))
    job = cluster(choices, replicas, most)
    bounds = Bounds(cluster=job, machine_hours=hours, timeout_s=timeout_s * 3600)
    past: list[Attempt] = []
    begun = 0  # Attempts of earlier commands.
    step = -1
    while isinstance(order := next_attempt(past, bounds, begun), Again):
        how = data.draw(st.sampled_from([Ending.STOCKOUT, Ending.LOST, Ending.FAILED]))
        seconds, new_steps = data.draw(st.floats(0, order.timeout_s)), data.draw(st.integers(0, 2))
        past.append(attempt(order.choice, how, step, new_steps, replicas=replicas, seconds=seconds))
        step += new_steps
        if new_steps and data.draw(st.booleans()):
            begun = len(past)
        assert len(past) <= (2 * most + 2) * (choices + 1)
    charged = [each for each in past if has_new_steps(each) or each.ending is not Ending.STOCKOUT]
    errors = [each for each in charged if each.ending is Ending.FAILED]
    counts = (len(errors), len(charged) - len(errors))
    assert max(counts) <= most + 1
    assert max(counts) == most + 1 or "restart" not in order.why
    assert sum(each.seconds for each in past) * replicas <= hours * 3600 + 1e-3
    assert sum(each.seconds for each in past) <= timeout_s * 3600 + 1e-3
    for one, two in itertools.pairwise(past[begun:]):
        assert has_new_steps(one) or one.ending is not Ending.FAILED
        after_stockout = 0 if has_new_steps(one) else (one.choice + 1) % choices
        assert two.choice == (after_stockout if one.ending is Ending.STOCKOUT else one.choice)
