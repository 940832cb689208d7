"""Users' models of every kind on every kind of cluster: each trains, resumes and is exported right.

Real jobs. Most cells of the table are for `make test-slow`.
"""

import itertools
import re

import numpy as np
import pytest
import tensorflow as tf
import wrong_models
from trainer_jobs import CLUSTERS, kill_at_random

from trainer.data import records
from trainer.models import registry

pytestmark = pytest.mark.cluster
STEPS, EVERY = 300, 20
MODELS = ["functional", "sequential", "subclassed", "penalised", "batch_norm", "frozen"]
# Each model and each cluster once at least.
OFTEN = {
    ("functional", "two_workers"),
    ("sequential", "one_device"),
    ("subclassed", "mirrored"),
    ("batch_norm", "two_workers"),
    ("frozen", "parameter_server"),
}
CELLS = [
    pytest.param(*cell, marks=[] if cell in OFTEN else pytest.mark.slow)
    for cell in itertools.product(MODELS, CLUSTERS)
]


@pytest.mark.parametrize(("model", "how"), CELLS)
def test_model_resumes_and_is_exported(make, images, model, how):
    name, (roles, more) = f"own_models:{model}", CLUSTERS[how]
    flags = f"--model {name} --batch-size 33 --train-steps {STEPS} --deterministic"
    flags += f" --checkpoint-num-steps {EVERY} --learning-rate 0.005 {more}"
    killed = make()
    killed.start(*roles, flags=flags)
    kill_at_random(killed, 0, between=(2 * EVERY + 1, STEPS // 2))
    killed.wait()
    killed.run(*roles, flags=flags)
    (resumed,) = killed.steps("resume")
    assert 0 < resumed < STEPS
    losses = [e["loss"] for e in itertools.chain(*killed.attempts()) if e["event"] == "step"]
    assert losses[-1] < 0.8 * losses[0]
    if how != "parameter_server":  # whose workers update as they come
        straight = make()
        straight.run(*roles, flags=flags)
        assert killed.digest(STEPS) == straight.digest(STEPS)
    batch = next(records.batches(images, str(killed.data), "test", 50))
    build = registry.builder(name, images, {})
    expected = killed.trained(build(), STEPS)(build.prepare({"image": batch["image"]}))
    answers = killed.served(image=batch["image"])["probabilities"]
    np.testing.assert_allclose(answers, tf.nn.softmax(expected), atol=1e-6)
    assert not np.allclose(answers[0], answers[1])


def test_wrong_model_is_refused_before_training(job):
    job.start("chief", "worker", "ps", flags="--model wrong_models:softmax --train-steps 2")
    assert job.wait("chief-0") == {"chief-0": 2}
    errors = re.findall("^(?!chief-0 computes|reader: ).+", job.log("chief-0").read_text(), re.M)
    assert len(errors) == 1 and wrong_models.REFUSED["softmax"][1] in errors[0]
    assert not job.events("start")
