"""Flags that change a step, several at a time: a job that is resumed ends with the bits of one that was not."""

import json

import numpy as np
import pytest
import tensorflow as tf
from trainer_jobs import CLUSTERS

pytestmark = pytest.mark.cluster
COMMON = "--model together:thawed --deterministic --eval-every-steps 6 --warmup-steps 4"
TOGETHER = {
    "compiled": "--jit-compile --clip-norm 0.5",
    "bfloat16": "--precision bfloat16 --class-weights 1=2,7=0.5 --clip-norm 0.5 --optimizer sgd",
    "patient": "--jit-compile --optimizer adamw --class-weights 3=5 --patience 1 --export best",
}
SLOW = pytest.mark.slow


@pytest.mark.parametrize("how", ["one_device", pytest.param("mirrored", marks=SLOW)])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "compiled" else SLOW) for n in TOGETHER]
)
def test_what_changes_a_step_goes_together_and_is_resumed_to_the_bit(make, digits, name, how):
    flags = [*COMMON.split(), *TOGETHER[name].split(), *CLUSTERS[how][1]]
    straight, resumed = make("straight"), make("resumed")
    straight.run("chief", flags=[*flags, "--train-steps", 18])
    resumed.run("chief", flags=[*flags, "--train-steps", 7])
    resumed.run("chief", flags=[*flags, "--train-steps", 18])
    done = json.loads((straight.directory / "DONE.json").read_text())
    assert resumed.digest(done["step"]) == straight.digest(done["step"])
    images = tf.constant(np.random.default_rng(0).integers(0, 17, (5, 8, 8, 1)), tf.uint8)
    answers = [
        tf.saved_model.load(str(job.directory / "model")).signatures["serving_default"](
            image=images
        )
        for job in (straight, resumed)
    ]
    np.testing.assert_array_equal(*(answer["probabilities"] for answer in answers))
