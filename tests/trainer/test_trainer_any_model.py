"""Users' models of every kind on every kind of cluster: each trains, resumes and is exported right. Real jobs.

Most cells of the table are for `make test-slow`.
"""

import itertools

import numpy as np
import pytest
from trainer_jobs import CLUSTERS, Job, kill_at_random

tf = pytest.importorskip("tensorflow")
import wrong_models  # noqa: E402

from common.manifest import Manifest  # noqa: E402
from trainer.data import records  # noqa: E402
from trainer.models import registry  # noqa: E402
from trainer.nn import weights  # noqa: E402

pytestmark = pytest.mark.cluster
STEPS, EVERY = 300, 20
MODELS = ["functional", "sequential", "subclassed", "seed_generator", "lstm"]
MODELS += ["penalised", "batch_norm", "text", "frozen", "two_inputs:network"]
# Each model and each cluster once at least.
OFTEN = {
    ("functional", "two_workers"),
    ("sequential", "one_device"),
    ("subclassed", "mirrored"),
    ("batch_norm", "two_workers"),
    ("text", "parameter_server"),
}


CELLS = [
    pytest.param(*cell, marks=[] if cell in OFTEN else pytest.mark.slow)
    for cell in itertools.product(MODELS, CLUSTERS)
]


@pytest.mark.parametrize(("model", "how"), CELLS)
def test_model_resumes_and_is_exported(make, model, how):
    name, (roles, more) = model if ":" in model else f"own_models:{model}", CLUSTERS[how]
    flags = ["--model", name, "--batch-size", 33, "--train-steps", STEPS, "--deterministic"]
    flags += ["--checkpoint-num-steps", EVERY, "--learning-rate", 0.005, *more]
    killed = make()
    killed.start(*roles, flags=flags)
    kill_at_random(killed, 0, between=(2 * EVERY + 1, STEPS // 2))
    killed.wait()
    killed.run(*roles, flags=flags)
    first, second = killed.attempts()
    assert not [e for e in first if e["event"] == "done"]
    (resumed,) = [e["step"] for e in second if e["event"] == "resume"]
    assert 0 < resumed < STEPS
    losses = [e["loss"] for e in (*first, *second) if e["event"] == "step"]
    assert losses[-1] < 0.8 * losses[0]
    if how != "parameter_server":  # whose workers update as they come
        straight = make()
        straight.run(*roles, flags=flags)
        assert killed.digest(STEPS) == straight.digest(STEPS)
    manifest = Manifest.load(killed.data)
    images = next(records.batches(manifest, str(killed.data), "test", 50))["image"]
    served = tf.saved_model.load(str(killed.directory / "model")).signatures["serving_default"]
    answers = served(image=images)["probabilities"]
    build = registry.builder(name, manifest, {})
    logits = trained(killed, build())(build.prepare({"image": images}))
    np.testing.assert_allclose(answers, tf.nn.softmax(logits), atol=1e-6)
    assert not np.allclose(answers[0], answers[1])


def trained(job: Job, built, step: int = STEPS):
    """A model with the weights of the last checkpoint."""
    variables = job.variables(step)
    keys = {name: f"variables/model.S{name.replace('/', '.S')}" for name in weights.named(built)}
    weights.put(
        {name: variables[f"{key}/.ATTRIBUTES/VARIABLE_VALUE"] for name, key in keys.items()}, built
    )
    return built


@pytest.mark.parametrize(
    ("model", "how"), [("softmax", "two_workers"), ("vocabulary", "parameter_server")]
)
def test_wrong_model_is_refused_before_training(make, model, how):
    refused = make()
    roles, more = CLUSTERS[how]
    refused.start(*roles, flags=["--model", f"wrong_models:{model}", "--train-steps", 2, *more])
    assert refused.wait_for("chief-0") == {"chief-0": 2}, refused.output()
    lines = refused.log("chief-0").read_text().splitlines()
    told = [line for line in lines if not line.startswith(("chief-0 computes in ", "reader: "))]
    assert len(told) == 1, told
    assert wrong_models.SAID[model] in told[0].lower()
    assert not [e for e in refused.events() if e["event"] in ("start", "step")]


CHANGING = """
import keras

def network(manifest):
    image = keras.Input((8, 8, 1), dtype="uint8", name="image")
    table = keras.layers.IntegerLookup(vocabulary={words}, output_mode="one_hot")
    x = keras.layers.Flatten()(table(keras.layers.Flatten()(image)))
    return keras.Model(image, keras.layers.Dense(10, name="head")(x))
"""


def test_changed_model_is_not_resumed(job, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    flags = ["--model", "changing:network", "--train-steps"]
    for steps, words, code in ((2, [1, 2], 0), (4, [1, 2], 0), (6, [2, 1], 2)):
        (tmp_path / "changing.py").write_text(f"# {steps}" + CHANGING.format(words=words))
        job.start("chief", flags=[*flags, steps])
        assert job.wait() == {"chief-0": code}, job.output()
    assert "has other weights, vocabularies or statistics than when" in job.output()
