import pathlib
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from etils import epath
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import UserError
from trainer.evaluation import Scores
from trainer.job.checkpoints import Checkpoints, remove
from trainer.job.journal import Journal
from trainer.job.state import State
from trainer.tasks.of_dataset import Classification

TASK = Classification(("no", "yes"))


@pytest.fixture
def model() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(300)])


@pytest.fixture
def state(model) -> State:
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return State(model, optimizer)


def chief(directory: epath.PathLike, state: State, keep: int = 3) -> Checkpoints:
    return Checkpoints(str(directory), state, Journal(str(directory), "chief-0"), keep=keep)


def fill(model: keras.Model, value: float) -> None:
    model.set_weights([np.full_like(w, value) for w in model.get_weights()])


def saved(checkpoints: Checkpoints, model: keras.Model, *steps: int) -> None:
    for step in steps:
        fill(model, step)
        checkpoints.save(step)
        fill(model, -1)  # training goes on while the files are written
        checkpoints.wait()
        assert step in checkpoints.steps()


def test_the_newest_are_kept_and_what_was_saved_is_what_was_at_that_step(tmp_path, model, state):
    checkpoints = chief(tmp_path, state, 2)
    assert checkpoints.restore() == 0
    saved(checkpoints, model, 10, 20, 30)
    assert checkpoints.steps() == [20, 30]
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")).endswith("ckpt-30")
    assert chief(tmp_path, state, 2).restore() == 30
    assert np.unique(model.get_weights()[0]) == [30]


DAMAGES = (
    lambda content, at: content[:at],
    lambda content, at: content[:at] + bytes(len(content) - at),
    lambda content, at: content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
    lambda content, at: None,
)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[pathlib.Path, keras.Model, State]:
    """A job directory with two checkpoints."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(300)])
    state, directory = State(model, keras.optimizers.SGD()), tmp_path_factory.mktemp("two")
    saved(chief(directory, state), model, 10, 20)
    return directory, model, state


@given(st.data())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_newest_checkpoint_damaged_in_any_way_is_named_once_and_passed_over(two, capsys, data):
    directory, model, state = two
    file = data.draw(st.sampled_from(sorted((directory / "checkpoints").glob("ckpt-20.*"))))
    whole = file.read_bytes()
    damaged = data.draw(st.sampled_from(DAMAGES))(whole, data.draw(st.just(0) | st.integers(0, len(whole) - 1)))
    file.unlink()
    if damaged is not None:
        file.write_bytes(damaged)
    capsys.readouterr()
    try:
        checkpoints = Checkpoints(str(directory), state)
        # Every byte of a value is under a checksum; what is not read may be anything.
        assert checkpoints.load_newest() == state.put() == np.unique(model.get_weights()[0])
        assert checkpoints.load_newest() == state.step
        assert state.step == 20 or checkpoints.load_newest(after=10) == 0
        named = 1 if state.step == 10 and 20 in checkpoints.steps() else 0
        assert capsys.readouterr().out.count("checkpoint 20 cannot be read and is passed over") == named
    finally:
        file.write_bytes(whole)


def test_nothing_that_can_be_read_is_an_error_and_not_a_fresh_start(tmp_path, model, state):
    checkpoints = chief(tmp_path, state)
    saved(checkpoints, model, 10)
    next((tmp_path / "checkpoints").glob("ckpt-10.data-*")).write_bytes(b"")
    with pytest.raises(OSError, match="none of the checkpoints"):
        checkpoints.restore()


def test_a_store_that_is_away_ends_the_attempt_and_damages_no_checkpoint(tmp_path, monkeypatch, model, state):
    checkpoints = chief(tmp_path, state)
    saved(checkpoints, model, 10, 20)
    away = mock.Mock(side_effect=tf.errors.AbortedError(None, None, "All 10 retry attempts failed."))
    with monkeypatch.context() as patch:
        told = "Unsuccessful TensorSliceReader constructor: ABORTED: All 10 retry attempts failed."
        patch.setattr(tf.train.Checkpoint, "read", mock.Mock(side_effect=ValueError(told)))
        with pytest.raises(OSError, match="retry"):
            checkpoints.restore()
    with monkeypatch.context() as patch:
        patch.setattr(tf.io.gfile, "listdir", away)
        with pytest.raises(OSError, match="retry"):
            checkpoints.restore()
        patch.setattr(tf.train.Checkpoint, "write", away)
        checkpoints.save(30)
        with pytest.raises(OSError, match="retry"):
            checkpoints.wait()
        with pytest.raises(OSError, match="retry"):
            Scores(str(tmp_path), TASK).add(30, {"loss": 1.0, "accuracy": 0.5}, state)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="retry"):
        patch.setattr(tf.io.gfile, "remove", away)
        remove(str(tmp_path / "checkpoints" / "ckpt-20"))
    assert checkpoints.restore() == 20


@pytest.mark.parametrize("name", ["a*", "é {a]"])
def test_old_checkpoints_go_and_those_of_a_neighbour_stay_whatever_the_job_is_called(tmp_path, model, state, name):
    neighbour, own = (chief(tmp_path / each, state, 1) for each in ("ab", name))
    saved(neighbour, model, 10)
    for best in ((own_scores := Scores(str(tmp_path / name), TASK)), Scores(str(tmp_path / "ab"), TASK)):
        best.add(10, {"loss": 1.0, "accuracy": 0.5}, state)
    saved(own, model, 10, 20)
    own_scores.add(20, {"loss": 1.0, "accuracy": 0.6}, state)
    for directory, step in (("ab", 10), (name, 20)):
        for part in ("checkpoints", "best"):
            files = {p.name.split(".")[0] for p in (tmp_path / directory / part).iterdir()}
            assert files - {"checkpoint"} == {f"ckpt-{step}"}
    assert own.restore() == 20


def test_the_best_state_is_kept_and_an_equal_one_is_not_better(tmp_path, model, state):
    scores = Scores(str(tmp_path), TASK)
    results = []
    for step, accuracy, loss in ((1, 0.5, 1.0), (2, 0.7, 0.9), (3, 0.7, 0.9), (4, 0.6, 0.1)):
        fill(model, step)
        state.take(step)
        results.append(scores.add(step, {"loss": loss, "accuracy": accuracy}, state))
    assert results == [True, True, False, False]
    assert {p.name.split(".")[0] for p in (tmp_path / "best").iterdir()} == {"ckpt-2"}
    assert scores.restore_best(state) == 2
    assert np.unique(next(iter(state.weights().values()))) == [2]
    assert scores.add(5, {"loss": 1.0, "accuracy": 0.1, "auc": 0.8}, state)  # of two classes it goes by that
    assert scores.load()["best"]["step"] == 5
    (tmp_path / "best" / "ckpt-5.index").write_bytes(b"")
    with pytest.raises(UserError, match=r"best/ckpt-5 cannot be used .*; the same command with --export last"):
        scores.restore_best(state)
