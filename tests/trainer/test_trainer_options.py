import argparse
import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from trainer import options as options_module
from trainer.options import Options, parse

NEEDED = ("--data-dir", "d", "--job-dir", "j", "--train-steps", "10")


def options(*flags: str, **environ: str) -> Options:
    return parse([*NEEDED, *flags], environ)


def test_global_batch_is_independent_of_replicas():
    assert options().global_batch_size(1) == options().global_batch_size(4) == 128
    assert options("--batch-size", "60").global_batch_size(4) == 60
    for flag in ("--per-replica-batch-size", "--train-batch-size", "--train_batch_size"):
        assert options(flag, "32").global_batch_size(4) == 128


def test_flags_may_have_underscores():
    parsed = parse(["--data_dir=a_b", "--job_dir", "c_d", "--train_steps", "3"], {})
    assert (parsed.data_dir, parsed.job_dir, parsed.train_steps) == ("a_b", "c_d", 3)


def test_job_dir_defaults_to_output_directory():
    vertex = {
        "AIP_MODEL_DIR": "gs://b/study/7/model/",
        "AIP_CHECKPOINT_DIR": "gs://b/study/7/checkpoints/",
    }
    assert parse(["--data-dir", "d", "--train-steps", "3"], vertex).job_dir == "gs://b/study/7"
    assert options(**vertex).job_dir == "j"
    with pytest.raises(UserError, match="--job-dir"):
        parse(["--data-dir", "d", "--train-steps", "3"], {})


def test_threads_default_to_environment():
    assert options(TRAINER_THREADS="2").threads == 2
    assert options("--threads", "3", TRAINER_THREADS="2").threads == 3
    for text in ("x", "-1", str(2**40)):
        with pytest.raises(UserError, match=f"TRAINER_THREADS: '{text}' is not a whole number"):
            options(TRAINER_THREADS=text)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--boundaries-epochs", "1,b", "--factors", "1,1,1"],
            "--boundaries-epochs: 'b' is not a number greater than",
        ),
        (
            ["--boundaries-epochs", "2,1", "--factors", "1,1,1"],
            "--boundaries-epochs 2.0,1.0 do not rise",
        ),
        (
            ["--boundaries-epochs", "1", "--factors", "1"],
            "--factors: 1 given for 1 boundaries; one more is needed",
        ),
        (["--factors", "1"], "--boundaries-epochs and --factors belong together"),
        (["--num_gpus", "-1"], "--num-gpus: '-1' is not a whole number of at least 0"),
        (["--batch-size", "8", "--train-batch-size", "8"], "not both"),
        (["--train-epochs", "2"], "--train-epochs"),
        (
            ["--jit-compile", "--strategy", "parameter_server"],
            "--jit-compile is for synchronous jobs",
        ),
        (["--data-dir", "gs:/a/b"], "--data-dir"),
        (["--job-dir", "s3://a"], "--job-dir"),
        (["--job-dir", "a[b"], "TensorFlow takes 'a[b' for a pattern"),
    ],
)
def test_impossible_value_is_error(flags, message):
    with pytest.raises(UserError, match=re.escape(message)):
        options(*flags)


NUMBERS = [action for action in options_module.parser()._actions if action.type]


@pytest.mark.parametrize("action", NUMBERS, ids=lambda action: action.dest)
@settings(max_examples=settings.default.max_examples // 3)
@given(
    st.sampled_from(
        [
            2**31 - 1,
            2**31,
            2**32 - 1,
            2**32,
            2**63 - 1,
            2**63,
            1e9,
            1e308,
            5e-324,
            0.9999999999999999,
            -1,
            0,
        ]
    )
    | st.integers()
    | st.floats()
)
def test_number_is_accepted_or_error(action, value):
    flag = action.option_strings[0]
    needed = NEEDED[:-2] if flag == "--train-epochs" else NEEDED
    try:
        opts = parse(
            [*needed, f"{flag}={value}", *(["--factors=1,1"] * (flag == "--boundaries-epochs"))], {}
        )
        assert 0 <= opts.seed < 2**32
        assert 0 < opts.last_step(10**9, 1) < 2**31 > opts.global_batch_size(64)
    except UserError as error:
        assert flag in str(error) or (flag == "--factors" and "belong together" in str(error))
        assert "\n" not in str(error)


def test_help_has_groups_defaults_and_units():
    parser = options_module.parser()
    groups = {
        group.title
        for group in parser._action_groups
        if group.title not in ("positional arguments", "options")
    }
    assert groups >= {
        "job",
        "batches",
        "network",
        "learning",
        "validation",
        "checkpoints",
        "machine",
    }
    text = " ".join(parser.format_help().split())
    assert "None" not in text
    for action in parser._actions:
        assert action.help, action.dest
        if action.default not in (None, False, "", argparse.SUPPRESS):
            assert f"(default: {action.default})" in text, action.dest
        if action.dest.endswith(("_secs", "_timeout_s")):
            assert action.metavar == "SECONDS", action.dest


def test_resume_may_change_documented_options():
    free = {"job", "reader", "validation", "checkpoints", "machine"}
    assert {f.name for f in dataclasses.fields(Options) if f.metadata["group"] == "job"} == {
        *("data_dir", "job_dir", "train_steps", "train_epochs")
    }
    for field in dataclasses.fields(Options):
        learnt = field.metadata["group"] not in free
        assert (field.name in options().identity()) == (learnt or field.name == "strategy"), (
            field.name
        )


def test_synchronous_strategies_have_one_identity():
    one, many, servers = (
        options("--strategy", s)
        for s in ("one_device", "multi_worker_mirrored", "parameter_server")
    )
    assert one.identity() == many.identity() != servers.identity()
