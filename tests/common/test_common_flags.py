"""Every flag that decides what is learnt changes it. Real training in this process, few steps."""

import numpy as np
import pytest

from common.manifest import Manifest
from tests.errors import user_error
from trainer import options
from trainer.cluster.member import Member
from trainer.cluster.shutdown import Stop

pytestmark = pytest.mark.cluster


@pytest.fixture
def job_dir(tmp_path):
    return tmp_path / "job"


@pytest.fixture
def learn(digits, job_dir, tmp_path, monkeypatch):
    """Trains with some flags; the model's weights at the end."""
    import keras
    import tensorflow as tf

    from trainer import main_loop

    monkeypatch.delenv("TRAINER_THREADS", raising=False)

    def run(flags):
        if job_dir.exists():
            job_dir.rename(tmp_path / f"before{len([*tmp_path.iterdir()])}")
        needed = f"--data-dir {digits} --job-dir {job_dir} --strategy one_device"
        opts = options.parse(f"{needed} {flags}".split(), {})
        member = Member(role="chief", index=0, addresses={})
        try:
            assert main_loop.run(opts, member, Manifest.load(digits), Stop()) == 0
        finally:
            keras.mixed_precision.set_dtype_policy("float32")
        reader = tf.train.load_checkpoint(str(job_dir / "checkpoints"))
        names = sorted(reader.get_variable_to_dtype_map())
        return [reader.get_tensor(name) for name in names if name.startswith("variables/model.S")]

    return run


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


CNN = "--train-steps 4 --model cnn --batch-size 16 "
SGD = "--optimizer sgd --learning-rate 0.05"
RESNET = "--train-steps 4 --model resnet --num-layers 8 --batch-size 16 "


@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (
            CNN,
            [
                "--seed 1",
                "--batch-size 17",
                "--optimizer adamw",
                "--clip-norm 0.1",
                "--learning-rate 0.002",
                "--weight-decay 0.1",
                "--schedule linear",
                "--schedule cosine",
                "--warmup-steps 3",
                "--schedule piecewise --boundaries-epochs 0.02 --factors 1,0.1",
                "--augment crop_flip",
                "--precision bfloat16",
                SGD,
                f"{SGD} --momentum 0.5",
            ],
        ),
        (RESNET, ["--batch-norm-decay 0.5", "--batch-norm-epsilon 0.1", "--augment none"]),
    ],
    ids=["cnn", "resnet"],
)
def test_every_flag_changes_what_is_learnt(learn, base, changes):
    """And none of them changes nothing."""
    seen = [learn(base)]
    assert same(seen[0], learn(base))
    for change in changes:
        learnt = learn(base + change)
        assert not any(same(learnt, other) for other in seen), change
        seen.append(learnt)


def test_epochs_are_passes_over_split(learn, digits, job_dir):
    learn("--model cnn --batch-size 16 --train-epochs 0.1")
    examples = Manifest.load(digits).split("train").examples
    assert (job_dir / "checkpoints" / f"ckpt-{-(-examples // 160)}.index").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--model no_such_package.mine:net", "must be on Python's path"),
        ("--num-gpus 3", "gives this replica 3 GPUs, and TensorFlow .* sees 0"),
        ("--all-reduce nccl", "needs GPUs"),
        (f"{SGD} --learning-rate 1e9", "training diverged; lower --learning-rate"),
    ],
)
def test_impossible_training_is_refused(learn, flags, message):
    with user_error(message):
        learn(CNN + flags)
