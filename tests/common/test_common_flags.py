"""Every flag that decides what is learnt changes it. Real training, a few steps each, in this process."""

import pathlib
import sys

import numpy as np
import pytest

from common.errors import UserError
from common.manifest import Manifest
from trainer import options
from trainer.cluster.member import Member
from trainer.cluster.shutdown import Stop

pytestmark = pytest.mark.cluster
STEPS = 4


@pytest.fixture
def learn(digits, tmp_path, monkeypatch):
    """Trains with some flags; the model's weights at the end."""
    import keras
    import tensorflow as tf

    from trainer import main_loop

    monkeypatch.delenv("TRAINER_THREADS", raising=False)
    runs: list[pathlib.Path] = []

    def run(*flags: str) -> list[np.ndarray]:
        runs.append(tmp_path / str(len(runs)))
        flags = (
            "--data-dir",
            str(digits),
            "--job-dir",
            str(runs[-1]),
            "--strategy",
            "one_device",
            *flags,
        )
        if "--train-epochs" not in flags:
            flags += ("--train-steps", str(STEPS))
        opts = options.parse(flags, {})
        try:
            assert (
                main_loop.run(
                    opts, Member(role="chief", index=0, addresses={}), Manifest.load(digits), Stop()
                )
                == 0
            )
        finally:
            keras.mixed_precision.set_dtype_policy("float32")
        reader = tf.train.load_checkpoint(str(runs[-1] / "checkpoints"))
        names = sorted(
            n for n in reader.get_variable_to_dtype_map() if n.startswith("variables/model.S")
        )
        return [reader.get_tensor(name) for name in names]

    run.directory = lambda: runs[-1]
    return run


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


CNN = ["--model", "cnn", "--batch-size", "16"]
SGD = [*CNN, "--optimizer", "sgd", "--learning-rate", "0.05"]
RESNET = ["--model", "resnet", "--num-layers", "8", "--batch-size", "16"]


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (
            CNN,
            [
                ["--seed", "1"],
                ["--batch-size", "17"],
                ["--optimizer", "sgd"],
                ["--optimizer", "adamw"],
                ["--clip-norm", "0.1"],
                ["--learning-rate", "0.002"],
                ["--weight-decay", "0.1"],
                ["--schedule", "linear"],
                ["--schedule", "cosine"],
                ["--warmup-steps", "3"],
                ["--schedule", "piecewise", "--boundaries-epochs", "0.02", "--factors", "1,0.1"],
                ["--augment", "crop_flip"],
                ["--precision", "bfloat16"],
            ],
        ),
        (SGD, [["--momentum", "0.5"]]),
        (
            RESNET,
            [["--batch-norm-decay", "0.5"], ["--batch-norm-epsilon", "0.1"], ["--augment", "none"]],
        ),
    ],
    ids=["cnn", "sgd", "resnet"],
)
def test_every_flag_changes_what_is_learnt_and_none_of_them_changes_nothing(learn, base, changes):
    plain = learn(*base)
    assert same(plain, learn(*base))
    seen = [plain]
    for change in changes:
        learnt = learn(*base, *change)
        assert not any(same(learnt, other) for other in seen), change
        seen.append(learnt)


def test_epochs_are_passes_over_the_training_split(learn, digits):
    learn(*CNN, "--train-epochs", "0.1")
    examples = Manifest.load(digits).split("train").examples
    (checkpoint,) = (learn.directory() / "checkpoints").glob("*.index")
    assert checkpoint.name == f"ckpt-{-(-examples // 160)}.index"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--model", "no_such_package.mine:net"], "must be on Python's path"),
        (["--num-gpus", "3"], "gives this replica 3 GPUs, and TensorFlow .* sees 0"),
        (["--all-reduce", "nccl"], "needs GPUs"),
    ],
)
def test_what_would_do_nothing_or_cannot_be_is_refused(learn, flags, message):
    with pytest.raises(UserError, match=message):
        learn(*flags)


def test_training_that_diverges_ends_with_a_hint(learn):
    with pytest.raises(UserError, match="training diverged; lower --learning-rate"):
        learn(*SGD, "--learning-rate", "1e9")


def test_a_model_of_ones_own_trains(learn, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from trainer.models import resnet\n"
        "LEARNING_RATE = 0.01\n"
        "def network(manifest, *, num_layers=8):\n"
        "    return resnet.build(manifest, num_layers=num_layers)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert len(learn("--model", "mine:network", "--num-layers", "14")) > len(
        learn("--model", "mine:network")
    )
    sys.modules.pop("mine")
    assert (learn.directory() / "model" / "saved_model.pb").exists()
