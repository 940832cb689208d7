import pytest

from trainer import learning
from trainer.base.errors import UserError
from trainer.options import Options, parse


def options(*flags: str) -> Options:
    return parse(["--data-dir", "d", "--job-dir", "j", "--train-steps", "10", *flags], {})


def optimizer(*flags: str):
    return learning.optimizer(options(*flags), examples=100, examples_per_step=10, horizon_steps=20)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model", "cnn", "--momentum", "0.5"], "--momentum is for --optimizer sgd, and this job's is adam"),
        (["--model", "resnet", "--optimizer", "adam", "--momentum", "0.9"], "--momentum is for"),
        (
            ["--model", "cnn", "--horizon-steps", "9"],
            "--horizon-steps is for --schedule linear or cosine, .* is constant",
        ),
        (["--model", "resnet", "--horizon-steps", "9"], "this job's is piecewise"),
        (["--model", "cnn", "--boundaries-epochs", "1", "--factors", "1,2"], "is for --schedule piecewise"),
        (["--model", "resnet", "--schedule", "linear", "--boundaries-epochs", "1", "--factors", "1,2"], "is linear"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(flags, message):
    with pytest.raises(UserError, match=message):
        optimizer(*flags)


def test_momentum_is_that_of_the_flag_or_the_customary_one():
    assert optimizer("--model", "resnet").momentum == 0.9
    assert optimizer("--model", "resnet", "--momentum", "0").momentum == 0
    assert optimizer("--model", "cnn", "--optimizer", "sgd", "--momentum", "0.5").momentum == 0.5


def test_falling_schedules_end_at_the_horizon():
    for name, falls in (("linear", True), ("cosine", True), ("constant", False)):
        assert learning.falls(options("--model", "cnn", "--schedule", name)) == falls
        rate = optimizer("--model", "cnn", "--schedule", name)._learning_rate
        assert float(rate(0)) == pytest.approx(1e-3) and float(rate(20)) == pytest.approx(0 if falls else 1e-3)
