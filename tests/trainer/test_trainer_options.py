import re

import pytest
from parsed import options

from tests.errors import user_error
from trainer.options import parse


def test_global_batch_is_independent_of_replicas():
    assert options().global_batch_size(1) == options().global_batch_size(4) == 128
    assert options("--batch-size 60").global_batch_size(4) == 60
    for flag in ("--per-replica-batch-size", "--train-batch-size", "--train_batch_size"):
        assert options(f"{flag} 32").global_batch_size(4) == 128


def test_job_dir_defaults_to_output_directory():
    vertex, needed = {"AIP_MODEL_DIR": "gs://b/study/7/model/"}, ["--data-dir=d", "--train-steps=3"]
    assert parse(needed, vertex).job_dir == "gs://b/study/7"
    assert options(**vertex).job_dir == "j"
    with user_error("--job-dir"):
        parse(needed, {})


def test_threads_default_to_environment():
    assert options(TRAINER_THREADS="2").threads == 2
    assert options("--threads 3", TRAINER_THREADS="2").threads == 3
    with user_error("TRAINER_THREADS: '-1' is not a whole number"):
        options(TRAINER_THREADS="-1")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--boundaries-epochs 1,b --factors 1,1,1", "--boundaries-epochs: 'b' is not a number"),
        ("--boundaries-epochs 2,1 --factors 1,1,1", "--boundaries-epochs 2.0,1.0 do not rise"),
        ("--boundaries-epochs 1 --factors 1", "--factors: 1 given for 1 boundaries; one more"),
        ("--factors 1", "--boundaries-epochs and --factors belong together"),
        ("--batch-size 8 --train-batch-size 8", "not both"),
        ("--train-epochs 2", "--train-epochs"),
        ("--jit-compile --strategy parameter_server", "--jit-compile is for synchronous jobs"),
        ("--data-dir gs:/a/b", "--data-dir"),
        ("--job-dir s3://a", "--job-dir"),
        ("--job-dir a[b", "TensorFlow takes 'a[b' for a pattern"),
        ("--class-weights no=nan", "--class-weights: 'no=nan' is not CLASS=WEIGHT with"),
        ("--class-weights yess=2", "--class-weights 'yess'; did you mean 'yes'"),
        ("--augment crop_flip", "--augment crop_flip is for images; dataset 'trips' is a table"),
        ("--model resnet", "--model resnet does not fit dataset 'trips'; use wide_deep"),
        ("--num-layers 8", "--num-layers means nothing to --model wide_deep"),
    ],
)
def test_impossible_value_is_error(table, flags, message):
    with user_error(re.escape(message)):
        options(flags).on(table).builder(table)


def test_model_defaults_to_fitting_one(images, table):
    for manifest, model in ((table, "wide_deep"), (images, "cnn")):
        assert options().on(manifest).model == model
        assert options("--model my.module:build").on(manifest).model == "my.module:build"
    with user_error("does not fit dataset 'digits'; use cnn or resnet"):
        options("--model wide_deep").on(images)


def test_resume_may_change_documented_options():
    assert options("--eval-batch-size 3 --threads 1").identity() == options().identity()
    assert options("--seed 1").identity() != options().identity()
    names = "one_device", "multi_worker_mirrored", "parameter_server"
    one, many, servers = (options(f"--strategy {name}").identity() for name in names)
    assert one == many != servers
