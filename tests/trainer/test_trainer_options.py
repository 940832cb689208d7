from __future__ import annotations

import pytest

from trainer.errors import UserError
from trainer.options import CHANGEABLE, Options, parse

NEEDED = ("--data-dir", "d", "--job-dir", "j", "--train-steps", "10")


def options(*flags: str, **environ: str) -> Options:
    return parse([*NEEDED, *flags], environ)


def test_the_global_batch_does_not_depend_on_the_number_of_replicas():
    assert options().global_batch_size(1) == options().global_batch_size(4) == 128
    assert options("--batch-size", "60").global_batch_size(4) == 60


@pytest.mark.parametrize("flag", ["--per-replica-batch-size", "--train-batch-size", "--train_batch_size"])
def test_the_batch_of_a_replica_multiplies(flag):
    assert options(flag, "32").global_batch_size(4) == 128


def test_both_meanings_at_once_are_refused():
    with pytest.raises(UserError, match="not both"):
        options("--batch-size", "8", "--train-batch-size", "8")


def test_underscores_are_understood_in_flags_and_left_in_values():
    parsed = parse(["--data_dir=a_b", "--job_dir", "c_d", "--train_steps", "3"], {})
    assert (parsed.data_dir, parsed.job_dir, parsed.train_steps) == ("a_b", "c_d", 3)


def test_the_launcher_gives_threads_and_the_flag_wins():
    assert options(TRAINER_THREADS="2").threads == 2
    assert options("--threads", "3", TRAINER_THREADS="2").threads == 3


@pytest.mark.parametrize(
    "flags",
    [
        ["--train-steps", "0"],
        ["--checkpoint-secs", "x"],
        ["--train-epochs", "2"],
        ["--logical-cpus", "2", "--strategy", "one_device"],
        ["--precision", "float16"],
        ["--batch-size", "-1"],
        ["--learning-rate", "0"],
        ["--model", "cnm"],
        ["--checkpoint-num-steps", "-1"],
        ["--seed", "-1"],
        ["--strategy", "mirored"],
        ["--no-such-flag"],
    ],
)
def test_bad_values_are_told_with_the_flag(flags):
    with pytest.raises(UserError, match=flags[0]):
        options(*flags)


def test_momentum_without_sgd_would_do_nothing_and_is_refused():
    with pytest.raises(UserError, match="--momentum belongs to --optimizer sgd"):
        options("--optimizer", "adam", "--momentum", "0.5")


def test_what_a_resume_may_change_is_not_part_of_the_identity():
    assert not CHANGEABLE & options().identity().keys()
    assert options("--seed", "3").identity() != options().identity()
    assert options("--checkpoint-num-steps", "3").identity() == options().identity()
