import pathlib
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from etils import epath
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from trainer.evaluation import Scores
from trainer.job.checkpoints import Checkpoints, remove
from trainer.job.journal import Journal
from trainer.job.state import State
from trainer.tasks.of_dataset import Classification

TASK = Classification(("no", "yes"))


def new_state() -> State:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(300)])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    return State(model, optimizer)


@pytest.fixture
def state() -> State:
    return new_state()


def chief(directory: epath.PathLike, state: State, keep: int = 3) -> Checkpoints:
    return Checkpoints(str(directory), state, Journal(str(directory), "chief-0"), keep=keep)


def fill(model: keras.Model, value: float) -> None:
    model.set_weights([np.full_like(w, value) for w in model.get_weights()])


def save(checkpoints: Checkpoints, *steps: int) -> None:
    """Saves states in which each weight is the step."""
    model = checkpoints.state.model
    for step in steps:
        fill(model, step)
        checkpoints.save(step)
        fill(model, -1)  # training goes on while the files are written
        checkpoints.wait()


def test_newest_checkpoints_are_kept(tmp_path, state):
    checkpoints = chief(tmp_path, state, 2)
    assert checkpoints.restore() == 0
    save(checkpoints, 10, 20, 30)
    assert checkpoints.steps() == [20, 30]
    assert tf.train.latest_checkpoint(str(tmp_path / "checkpoints")).endswith("ckpt-30")
    assert chief(tmp_path, state, 2).restore() == 30
    assert np.unique(state.model.get_weights()[0]) == [30]


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> tuple[pathlib.Path, State]:
    """Returns a job directory with two checkpoints."""
    state, directory = new_state(), tmp_path_factory.mktemp("two")
    save(chief(directory, state), 10, 20)
    return directory, state


@given(st.data())
def test_damaged_checkpoint_is_passed_over(two, data):
    """A newest checkpoint that is cut, zeroed, changed or removed in any file at any place is passed over."""
    directory, state = two
    file = data.draw(st.sampled_from(sorted((directory / "checkpoints").glob("ckpt-20.*"))))
    content = file.read_bytes()
    at = data.draw(st.just(0) | st.integers(0, len(content) - 1))
    damages = [
        content[:at],
        content[:at] + bytes(len(content) - at),
        content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :],
        None,
    ]
    damaged = data.draw(st.sampled_from(damages))
    file.unlink()
    if damaged is not None:
        file.write_bytes(damaged)
    try:
        checkpoints = Checkpoints(str(directory), state)
        with mock.patch("builtins.print") as printed:
            # Every byte of a value is under a checksum; what is not read may be anything.
            assert (
                checkpoints.load_newest() == state.put() == np.unique(state.model.get_weights()[0])
            )
            assert checkpoints.load_newest() == state.step
        assert state.step == 20 or checkpoints.load_newest(after=10) == 0
        messages = [call.args[0] for call in printed.call_args_list]
        assert len(messages) == (state.step == 10 and 20 in checkpoints.steps())
        assert all(
            "checkpoint 20 cannot be read and is passed over" in message for message in messages
        )
    finally:
        file.write_bytes(content)


def test_only_damaged_checkpoints_are_error(tmp_path, state):
    """Training does not begin anew."""
    checkpoints = chief(tmp_path, state)
    save(checkpoints, 10)
    next((tmp_path / "checkpoints").glob("ckpt-10.data-*")).write_bytes(b"")
    with pytest.raises(OSError, match="none of the checkpoints"):
        checkpoints.restore()


def test_unavailable_store_keeps_checkpoints(tmp_path, monkeypatch, state):
    checkpoints = chief(tmp_path, state)
    save(checkpoints, 10, 20)
    away = mock.Mock(
        side_effect=tf.errors.AbortedError(None, None, "All 10 retry attempts failed.")
    )
    unread = mock.Mock(
        side_effect=ValueError("Unsuccessful constructor: ABORTED: All 10 retry attempts failed.")
    )

    def write() -> None:
        checkpoints.save(30)
        checkpoints.wait()

    def add_score() -> None:
        Scores(str(tmp_path), TASK).add(30, {"loss": 1.0, "accuracy": 0.5}, state)

    def remove_20() -> None:
        remove(str(tmp_path / "checkpoints" / "ckpt-20"))

    for owner, name, replacement, call in (
        (tf.train.Checkpoint, "read", unread, checkpoints.restore),
        (tf.io.gfile, "listdir", away, checkpoints.restore),
        (tf.train.Checkpoint, "write", away, add_score),
        (tf.io.gfile, "remove", away, remove_20),
        (tf.train.Checkpoint, "write", away, write),
    ):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="retry"):
            patch.setattr(owner, name, replacement)
            call()
    assert checkpoints.restore() == 20


@pytest.mark.parametrize("name", ["a*", "é {a]"])
def test_checkpoints_of_neighbour_are_kept(tmp_path, state, name):
    """Names of job directories are no patterns."""
    for job, keep, scored in (("ab", [10], [(10, 0.5)]), (name, [10, 20], [(10, 0.5), (20, 0.6)])):
        save(chief(tmp_path / job, state, 1), *keep)
        for step, accuracy in scored:
            Scores(str(tmp_path / job), TASK).add(step, {"loss": 1.0, "accuracy": accuracy}, state)
    for job, step in (("ab", 10), (name, 20)):
        for part in ("checkpoints", "best"):
            files = {path.name.split(".")[0] for path in (tmp_path / job / part).iterdir()}
            assert files - {"checkpoint"} == {f"ckpt-{step}"}


def test_best_state_is_kept(tmp_path, state):
    scores = Scores(str(tmp_path), TASK)
    results = []
    for step, accuracy, loss in ((1, 0.5, 1.0), (2, 0.7, 0.9), (3, 0.7, 0.9), (4, 0.6, 0.1)):
        fill(state.model, step)
        state.take(step)
        results.append(scores.add(step, {"loss": loss, "accuracy": accuracy}, state))
    assert results == [True, True, False, False]  # an equal one is not better
    assert {path.name.split(".")[0] for path in (tmp_path / "best").iterdir()} == {"ckpt-2"}
    assert scores.restore_best(state) == 2
    assert np.unique(next(iter(state.weights().values()))) == [2]
    assert scores.add(
        5, {"loss": 1.0, "accuracy": 0.1, "auc": 0.8}, state
    )  # of two classes it goes by that
    assert scores.load()["best"]["step"] == 5
    (tmp_path / "best" / "ckpt-5.index").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"best/ckpt-5 cannot be used .*; the same command with --export last"
    ):
        scores.restore_best(state)
