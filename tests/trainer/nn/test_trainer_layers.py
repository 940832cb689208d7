import os
import pathlib
import subprocess
import sys

import keras
import layers_program
import numpy as np
import pytest
import tensorflow as tf
from layers_program import BATCH, DECAY, batch_norm, inputs

from trainer.nn import randomness
from trainer.nn.layers import BatchNormalization, exchanges

ROOT = pathlib.Path(__file__).parents[3]
ONE = tf.distribute.get_strategy()


def reference(dtype: str = "float32", shape: tuple[int, ...] = (BATCH, 4, 6, 5)) -> dict[str, np.ndarray]:
    """Keras' layer on one replica with the whole batch."""
    make = lambda: keras.layers.BatchNormalization(momentum=DECAY, epsilon=1e-5, dtype=dtype)  # noqa: E731
    [(_, values)] = batch_norm(ONE, make, shape)
    return values


def assert_close(values: dict[str, np.ndarray], expected: dict[str, np.ndarray], tolerance: float) -> None:
    """By the largest value of each array: single ones may be differences of large numbers."""
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=0, atol=tolerance * np.abs(value).max(), err_msg=name)


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> dict[str, dict[str, np.ndarray]]:
    """What the program saw, by strategy."""
    directory = tmp_path_factory.mktemp("replicas")
    command = [sys.executable, layers_program.__file__, directory]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    files = {file.stem: dict(np.load(file)) for file in directory.iterdir()}
    return {**files, "workers": files["worker-0"] | files["worker-1"]}


@pytest.fixture(params=[pytest.param(strategy, marks=pytest.mark.cluster) for strategy in ("mirrored", "workers")])
def replicas(request, programs) -> dict[str, np.ndarray]:
    return programs[request.param]


def of(replicas: dict[str, np.ndarray], what: str) -> dict[str, list[np.ndarray]]:
    """By name, the values of both replicas."""
    names = {key.split("/")[1] for key in replicas if key.startswith(f"{what}/")}
    return {name: [replicas[f"{what}/{name}/{i}"] for i in range(2)] for name in names}


def merged(replicas: dict[str, np.ndarray], what: str) -> dict[str, np.ndarray]:
    """What the replicas saw together: parts of the batch joined, gradients of weights added."""
    values = of(replicas, what)
    joined = {name: np.concatenate(values[name]) for name in ("y", "dx")}
    added = {name: sum(values[name]) for name in ("dgamma", "dbeta")}
    return joined | added | {name: values[name][0] for name in ("mean", "variance")}


@pytest.mark.parametrize("shape", [(BATCH, 4, 6, 5), (1, 1, 1, 5)])
def test_one_replica_computes_what_keras_does(shape):
    [(_, values)] = batch_norm(ONE, lambda: BatchNormalization(decay=DECAY), shape)
    assert_close(values, reference(shape=shape), 1e-5)


def test_inference_uses_the_moving_statistics_and_leaves_them_alone():
    ours, theirs = BatchNormalization(epsilon=1e-3), keras.layers.BatchNormalization(epsilon=1e-3)
    x = inputs((BATCH, 4, 6, 5))
    weights = [np.linspace(i + 1, i + 2, 5).astype(np.float32) for i in range(4)]
    for layer in (ours, theirs):
        layer.build(x.shape)
        layer.set_weights(weights)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-5)
    ours.trainable = False
    np.testing.assert_allclose(ours(x, training=True), theirs(x), rtol=1e-4, atol=1e-5)
    for before, after in zip(weights, ours.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_synchronised_replicas_compute_what_one_does_with_the_whole_batch(replicas):
    assert len(of(replicas, "synchronised")["y"][0]) != len(of(replicas, "synchronised")["y"][1])
    assert_close(merged(replicas, "synchronised"), reference(), 2e-5)
    assert_close(merged(replicas, "mixed"), reference("mixed_bfloat16"), 0.03)


def test_moving_statistics_are_equal_on_all_replicas(replicas):
    for what in ("synchronised", "mixed"):
        for name in ("mean", "variance"):
            np.testing.assert_array_equal(*of(replicas, what)[name])


@pytest.mark.cluster
def test_the_worker_of_a_parameter_server_job_uses_and_leaves_its_own_statistics(programs):
    values, x = programs["parameter_server"], inputs((BATCH, 1, 1, 5))
    np.testing.assert_allclose(values["y"], (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), atol=1e-5)
    np.testing.assert_allclose(values["mean"], (1 - DECAY) * x.mean((0, 1, 2)), rtol=1e-5)
    np.testing.assert_allclose(values["variance"], DECAY + (1 - DECAY) * x.var((0, 1, 2)), rtol=1e-5)


@pytest.mark.cluster
def test_parameter_servers_share_a_table_and_a_step_changes_only_the_rows_it_asked_for(programs):
    found = {name: value.tolist() for name, value in programs["parameter_server"].items()}
    assert found["momentums"] == found["velocities"] == found["weights"]
    assert (found["changed"], found["steps"]) == ([3, 11, 12], 1)


def test_dropout_drops_its_share_and_keeps_the_mean():
    with randomness.deterministic_context(seed=0, step=0, first=0):
        dropped = keras.layers.Dropout(0.3)(tf.ones([1000, 50]), training=True).numpy()
    assert set(np.unique(dropped)) == {0, np.float32(1 / np.float32(0.7))}
    assert (dropped == 0).mean() == pytest.approx(0.3, abs=0.01)
    assert np.abs(np.corrcoef(dropped[:-1].ravel(), dropped[1:].ravel())[0, 1]) < 0.02


@pytest.mark.parametrize("make", [BatchNormalization, keras.layers.BatchNormalization])
def test_a_model_exchanges_sums_where_it_normalises_by_the_batch(make):
    layer = make()
    model = keras.Sequential([keras.Input([2, 2, 3]), keras.Sequential([layer]), keras.layers.Dense(2)])
    assert exchanges(model)
    layer.trainable = False
    assert not exchanges(model)


@pytest.mark.cluster
def test_dropout_masks_and_seeds_are_the_same_when_xla_compiles_them():
    layer = keras.layers.Dropout(0.3)

    def draw(first: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with randomness.deterministic_context(seed=1, step=tf.constant(7, tf.int64), first=first):
            return layer(tf.ones([6, 3, 7]), training=True), randomness.seed()

    for first in map(tf.constant, (0, 5)):
        for plain, compiled in zip(draw(first), tf.function(draw, jit_compile=True)(first), strict=True):
            np.testing.assert_allclose(plain, compiled, rtol=1e-6)


def test_a_place_ends_with_its_block_and_the_inner_one_counts():
    def draw() -> np.ndarray:
        return randomness.uniform(tf.constant([2, 3])).numpy()

    with randomness.deterministic_context(seed=0, step=1, first=0):
        outer = draw()
        with randomness.deterministic_context(seed=0, step=2, first=0):
            assert not np.array_equal(draw(), outer)
    with randomness.deterministic_context(seed=0, step=1, first=1):
        np.testing.assert_array_equal(draw()[0], outer[1])
