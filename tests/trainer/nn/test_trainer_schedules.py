import math

import pytest

from trainer.nn.schedules import Schedule, cosine, linear, piecewise

BOUNDARIES, FACTORS = (82, 123, 300), (1.0, 0.1, 0.01, 0.002)


@pytest.mark.parametrize("examples_per_step", [128, 7, 90_000])
def test_factor_changes_at_boundary(examples_per_step):
    """The next factor holds from the first step that begins after the boundary."""
    sizes = {"examples_per_epoch": 45_000, "examples_per_step": examples_per_step}
    schedule = Schedule(0.1, piecewise(BOUNDARIES, FACTORS, **sizes))
    for boundary, before, after in zip(BOUNDARIES, FACTORS, FACTORS[1:], strict=False):
        step = math.ceil(boundary * 45_000 / examples_per_step)
        rates = [float(schedule(at)) for at in (step - 1, step)]
        assert rates == pytest.approx([0.1 * before, 0.1 * after])
    assert float(schedule(2**40)) == pytest.approx(0.1 * 0.002)


@pytest.mark.parametrize("warmup_steps", [0, 4])
def test_falling_schedules_end_at_horizon(warmup_steps):
    for step in (0, 1, 2, 3, 4, 25, 50, 99, 100, 101, 10**9):
        done = min(step / 100, 1)
        warm = 0.2 * min((step + 1) / 4, 1) if warmup_steps else 0.2
        for falling, left in ((linear, 1 - done), (cosine, (1 + math.cos(math.pi * done)) / 2)):
            schedule = Schedule(0.2, falling(100), warmup_steps=warmup_steps)
            assert float(schedule(step)) == pytest.approx(warm * left, abs=1e-7)
