import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.models import resnet
from trainer.nn.schedules import Schedule, cosine, linear, piecewise


def epochs(rate: float, boundaries, factors, warmup_steps: int = 0, **lengths: int) -> Schedule:
    lengths = {"examples_per_epoch": 45_000, "examples_per_step": 128, **lengths}
    return Schedule(rate, piecewise(boundaries, factors, **lengths), warmup_steps=warmup_steps)


@pytest.mark.parametrize("examples_per_step", [128, 7, 90_000])
def test_the_factor_changes_with_the_first_step_that_begins_after_the_boundary(examples_per_step):
    schedule = epochs(0.1, resnet.BOUNDARIES_EPOCHS, resnet.FACTORS, examples_per_step=examples_per_step)
    for boundary, before, after in zip(resnet.BOUNDARIES_EPOCHS, resnet.FACTORS, resnet.FACTORS[1:], strict=False):
        step = -(-boundary * 45_000 // examples_per_step)
        assert (step - 1) * examples_per_step < boundary * 45_000 <= step * examples_per_step
        assert float(schedule(step - 1)) == pytest.approx(0.1 * before)
        assert float(schedule(step)) == pytest.approx(0.1 * after)
    assert float(schedule(0)) == pytest.approx(0.1)
    assert float(schedule(2**40)) == pytest.approx(0.1 * resnet.FACTORS[-1])


def test_linear_and_cosine_fall_to_zero_at_the_horizon_and_stay():
    line, curve = Schedule(0.2, linear(100)), Schedule(0.2, cosine(100))
    for step in (0, 1, 25, 50, 99, 100, 101, 10**9):
        done = min(step / 100, 1)
        assert float(line(step)) == pytest.approx(0.2 * (1 - done), abs=1e-8)
        assert float(curve(step)) == pytest.approx(0.1 * (1 + math.cos(math.pi * done)), abs=1e-7)
    assert float(line(10**9)) == float(curve(10**9)) == 0


def test_warm_up_grows_linearly_from_its_first_share_to_the_whole():
    schedule = Schedule(0.4, warmup_steps=4)
    assert [float(schedule(step)) for step in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    plain, warm = Schedule(0.4, cosine(10)), Schedule(0.4, cosine(10), warmup_steps=4)
    expected = [min((s + 1) / 4, 1) * float(plain(s)) for s in range(10)]
    assert [float(warm(s)) for s in range(10)] == pytest.approx(expected)


def test_step_may_be_a_tensor_or_the_optimizers_counter():
    schedule = epochs(0.1, resnet.BOUNDARIES_EPOCHS, resnet.FACTORS, warmup_steps=400)
    steps = [0, 3, 99, 28_829]
    eager = [float(schedule(step)) for step in steps]
    graph = tf.function(schedule)
    for dtype in (tf.int64, tf.int32):
        assert [float(graph(tf.constant(step, dtype))) for step in steps] == eager
    optimizer, weight = keras.optimizers.SGD(schedule), keras.Variable(np.float32(0))
    optimizer.build([weight])
    optimizer.iterations.assign(99)
    assert float(optimizer.learning_rate) == eager[2]
    optimizer.apply([tf.constant(-1.0)], [weight])
    assert float(weight.value) == eager[2]  # the rate of the step that it does
