import math

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer import options
from trainer.base.errors import UserError
from trainer.job_dir.checkpoint import Checkpoints
from trainer.job_dir.interval import FIRST_S, advised_s
from trainer.job_dir.journal import Journal, last
from trainer.job_dir.state import State


def overhead(every_s: float, cost_s: float, mtbf_s: float) -> float:
    """Time that is expected to pass beyond training itself, as a share of that, with checkpoints so often."""
    return mtbf_s * math.expm1((every_s + cost_s) / mtbf_s) / every_s - 1


@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1.0))
def test_the_advice_is_the_interval_at_which_least_time_is_expected_to_be_lost(cost_s, part):
    mtbf_s = cost_s / part
    found = advised_s(cost_s, mtbf_s)
    around = found * np.linspace(0.5, 2.0, 1501)
    best = around[np.argmin([overhead(every, cost_s, mtbf_s) for every in around])]
    assert found == pytest.approx(best, rel=0.1)


def simulated_s(every_s: float, cost_s: float, mtbf_s: float, restart_s: float, work_s: float, rng) -> float:
    """Seconds until so much work is done, when machines fail at random and each time the last checkpoint is gone back to."""
    clock, left_s = 0.0, work_s
    while True:
        up_s = rng.exponential(mtbf_s)
        whole, rest_s = divmod(left_s, every_s)
        needed_s = left_s + cost_s * (whole + (rest_s > 0))
        if needed_s <= up_s:
            return clock + needed_s
        left_s -= every_s * min(whole, up_s // (every_s + cost_s))
        clock += up_s + restart_s


@pytest.mark.parametrize(("cost_s", "mtbf_s"), [(0.05, 600.0), (2.0, 3600.0), (30.0, 14_400.0)])
def test_the_advised_interval_loses_at_most_a_tenth_more_than_the_best_of_eight_simulated_ones(cost_s, mtbf_s):
    work_s, restart_s = 20 * mtbf_s, 10.0

    def lost_s(every_s: float) -> float:
        rng = np.random.default_rng(7)
        runs = [simulated_s(every_s, cost_s, mtbf_s, restart_s, work_s, rng) for _ in range(60)]
        return float(np.mean(runs)) - work_s

    eight = [lost_s(every_s) for every_s in np.geomspace(cost_s, mtbf_s, 8)]
    advised = lost_s(advised_s(cost_s, mtbf_s))
    assert advised <= 1.1 * min(eight)
    assert max(eight) > 1.5 * advised  # the interval matters, so that this can fail


def test_a_machine_that_fails_before_a_checkpoint_is_made_gets_an_interval_too():
    assert advised_s(10.0, 5.0) == 5.0 and math.isfinite(overhead(5.0, 10.0, 5.0))


def opts(directory, *flags: str) -> options.Options:
    known = ["--data-dir", "d", "--job-dir", str(directory), "--train-steps", "1"]
    return options.parse([*known, *flags], {})


@pytest.fixture
def state() -> State:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(300)])
    return State(model, keras.optimizers.SGD())


def test_auto_goes_by_what_checkpoints_were_measured_to_cost_also_in_the_attempt_before(tmp_path, monkeypatch, state):
    given = opts(tmp_path, "--checkpoint-secs", "auto", "--mtbf-hours", "2")
    checkpoints = Checkpoints(given, state, Journal(str(tmp_path), "chief-0"))
    assert checkpoints.every_s == FIRST_S and not checkpoints.due(500)  # by steps there are none
    for cpu_s in (9.0, 0.5, 0.5):
        monkeypatch.setattr(checkpoints, "_write", lambda step, cpu_s=cpu_s: (3.0, cpu_s))
        checkpoints.save(1)
        checkpoints._under_way[2].result()
        assert not checkpoints.late  # from here on its cost is known
    event = last(str(tmp_path), "chief-0", "checkpoint")
    assert checkpoints.every_s == pytest.approx(advised_s(0.5, 7200), rel=0.05)
    assert event["every_s"] == pytest.approx(checkpoints.every_s, abs=0.1)
    resumed = Checkpoints(given, state, Journal(str(tmp_path), "chief-0"), vital=4)
    assert resumed.every_s == pytest.approx(advised_s(0.5, 1800), rel=0.05)
    often = opts(tmp_path, "--checkpoint-secs", "auto", "--mtbf-hours", "0.0001")
    assert Checkpoints(often, state, Journal(str(tmp_path), "chief-0")).every_s == 3.0  # the writing of one
    assert Checkpoints(opts(tmp_path), state).every_s == 60


def test_steps_count_beside_auto_only_if_they_are_given(tmp_path):
    assert opts(tmp_path).steps_a_checkpoint == 500
    assert opts(tmp_path, "--checkpoint-secs", "auto").steps_a_checkpoint == 0
    assert opts(tmp_path, "--checkpoint-secs", "auto", "--checkpoint-num-steps", "7").steps_a_checkpoint == 7
    with pytest.raises(UserError, match="--checkpoint-secs: 'often' is not auto or a number of at least 0"):
        opts(tmp_path, "--checkpoint-secs", "often")
