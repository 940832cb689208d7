from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.errors import user_error
from trainer.evaluation import Scores
from trainer.job.checkpoints import Checkpoints
from trainer.job.journal import Journal
from trainer.job.state import State
from trainer.tasks.of_dataset import Classification


def new_state():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(300)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return State(model, optimizer)


state = pytest.fixture(new_state)


def chief(directory, state, keep=3):
    return Checkpoints(str(directory), state, Journal(str(directory), "chief-0"), keep=keep)


def fill(model, value):
    model.set_weights([np.full_like(w, value) for w in model.get_weights()])


def save(checkpoints, *steps):
    """Saves states in which each weight is the step."""
    model = checkpoints.state.model
    for step in steps:
        fill(model, step)
        checkpoints.save(step)
        fill(model, -1)  # training goes on while the files are written
        checkpoints.wait()


def scores_in(directory):
    return Scores(str(directory), Classification(("no", "yes")))


def add_score(directory, step, state, accuracy):
    return scores_in(directory).add(step, {"loss": 1.0, "accuracy": accuracy}, state)


def names(directory):
    return {path.name.split(".")[0] for path in directory.iterdir()} - {"checkpoint"}


def test_newest_checkpoints_are_kept(tmp_path, state):
    """Training does not begin anew when all of them are damaged."""
    checkpoints = chief(tmp_path, state, 2)
    assert checkpoints.restore() == 0
    save(checkpoints, 10, 20, 30)
    assert checkpoints.steps() == [20, 30]
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")).endswith("ckpt-30")
    assert chief(tmp_path, state, 2).restore() == 30
    assert np.unique(state.model.get_weights()[0]) == [30]
    for file in tmp_path.glob("checkpoints/ckpt-30.data-*"):
        file.write_bytes(b"")
    save(checkpoints, 21, 22)
    assert checkpoints.steps() == [21, 22, 30]
    for file in tmp_path.glob("checkpoints/*.data-*"):
        file.write_bytes(b"")
    with pytest.raises(OSError, match="none of the checkpoints"):
        checkpoints.restore()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Returns a job directory with two checkpoints."""
    state, directory = new_state(), tmp_path_factory.mktemp("two")
    save(chief(directory, state), 10, 20)
    return directory, state


@given(st.data())
def test_damaged_checkpoint_is_passed_over(two, data):
    """A newest checkpoint that is cut, zeroed, changed or removed at any place is passed over."""
    directory, state = two
    file = data.draw(st.sampled_from(sorted((directory / "checkpoints").glob("ckpt-20.*"))))
    content = file.read_bytes()
    at = data.draw(st.just(0) | st.integers(0, len(content) - 1))
    changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    zeroed = content[:at] + bytes(len(content) - at)
    damaged = data.draw(st.sampled_from([content[:at], zeroed, changed, None]))
    file.unlink()
    if damaged is not None:
        file.write_bytes(damaged)
    try:
        checkpoints = Checkpoints(str(directory), state)
        with mock.patch("builtins.print") as printed:
            # Every byte of a value is under a checksum; what is not read may be anything.
            step = checkpoints.load_newest()
            assert step == state.put() == np.unique(state.model.get_weights()[0])
            assert checkpoints.load_newest() == step
        assert step == 20 or checkpoints.load_newest(after=10) == 0
        assert printed.call_count == (step == 10 and 20 in checkpoints.steps())
    finally:
        file.write_bytes(content)


def test_unavailable_store_keeps_checkpoints(tmp_path, monkeypatch, state):
    checkpoints = chief(tmp_path, state)
    save(checkpoints, 10, 20)
    away = mock.Mock(side_effect=tf.errors.AbortedError(None, None, "All retry attempts failed."))
    for owner, name, call in (
        (tf.train.Checkpoint, "read", checkpoints.restore),
        (tf.io.gfile, "listdir", checkpoints.restore),
        (tf.train.Checkpoint, "write", lambda: add_score(tmp_path, 30, state, 0.5)),
        (tf.train.Checkpoint, "write", lambda: save(checkpoints, 30)),
    ):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="retry"):
            patch.setattr(owner, name, away)
            call()
    assert checkpoints.restore() == 20


def test_checkpoints_of_neighbour_are_kept(tmp_path, state):
    """Names of job directories are no patterns."""
    for name, step in (("ab", 10), ("a*", 2), ("a*", 20)):
        save(chief(tmp_path / name, state, 1), step)
        add_score(tmp_path / name, step, state, step / 100)
    for name, step in (("ab", 10), ("a*", 20)):
        for part in ("checkpoints", "best"):
            assert names(tmp_path / name / part) == {f"ckpt-{step}"}


def test_best_state_is_kept(tmp_path, state):
    for step, accuracy, is_best in ((1, 0.5, True), (2, 0.7, True), (3, 0.7, False)):
        fill(state.model, step)
        state.take(step)
        assert add_score(tmp_path, step, state, accuracy) == is_best  # an equal one is not better
    assert names(tmp_path / "best") == {"ckpt-2"}
    scores = scores_in(tmp_path)
    assert scores.restore_best(state) == 2
    assert np.unique(next(iter(state.weights().values()))) == [2]
    (tmp_path / "best" / "ckpt-2.index").write_bytes(b"")
    with user_error(r"ckpt-2 cannot be used .* with --export last"):
        scores.restore_best(state)
