"""Jobs that begin with the weights of others: real processes."""

import re
import shlex
import shutil

import keras
import numpy as np
import pytest
from trainer_jobs import ROOT

from components.convert.convert import convert
from components.convert.options import Options

pytestmark = pytest.mark.cluster
FLAGS = [
    "--model",
    "own_models:batch_norm",
    "--batch-size",
    32,
    "--optimizer",
    "sgd",
    "--deterministic",
]


def test_all_replicas_begin_with_the_same_weights_and_a_resumed_job_takes_none(make):
    first, alone, several = make("first"), make("alone"), make("several")
    first.run("chief", flags=[*FLAGS, "--learning-rate", 0.05, "--train-steps", 60])
    begun = [*FLAGS, "--init-from", first.directory, "--learning-rate", 0.001, "--train-steps"]
    told = f"--init-from {first.directory}: 11 of 11 weights from the checkpoint of step 60"
    assert alone.run("chief", flags=[*begun, 20]).count(told) == 1
    assert several.run("chief", "worker", flags=[*begun, 20]).count(told) == 1
    ours, theirs, before = alone.variables(20), several.variables(20), first.variables(60)
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, atol=1e-5, err_msg=name)
    kernel = next(name for name in ours if "functional.Sdense.Skernel" in name)
    assert 0 < np.abs(ours[kernel] - before[kernel]).max() < 0.05
    shutil.rmtree(first.directory)
    assert (
        "--init-from" not in alone.run("chief", flags=[*begun, 30]).split("from step 20 to 30")[1]
    )
    several.start("chief", flags=[*FLAGS, "--learning-rate", 0.001, "--train-steps", 30])
    assert several.wait() == {"chief-0": 2}
    assert f"init_from: '{first.directory}' -> None" in several.output()


@pytest.mark.slow
def test_the_page_fine_tunes_a_backbone_that_is_read_once(make, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "MODELS.md").read_text()
    (code,) = [
        b for b in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL) if "def frozen" in b
    ]
    (tmp_path / "tuned.py").write_text(code)
    (block,) = [
        b for b in re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL) if "--init-from" in b
    ]
    commands = [shlex.split(line)[3:] for line in block.splitlines()]
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "cifar").mkdir()
    draw = np.random.default_rng(0)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        labels, pixels = draw.integers(0, 10, 40), draw.integers(0, 256, (40, 3072))
        pixels[:, ::4] = labels[:, None] * 25
        records = np.hstack([labels[:, None], pixels]).astype(np.uint8)
        (tmp_path / "cifar" / f"{name}.bin").write_bytes(records.tobytes())
    convert(
        Options(
            dataset="cifar10",
            source=str(tmp_path / "cifar"),
            output=str(tmp_path / "data"),
            shards=2,
        )
    )
    pretrained = keras.applications.MobileNetV2(
        (32, 32, 3), alpha=0.35, include_top=False, weights=None
    )
    file = tmp_path / "backbone.keras"
    pretrained.save(file)
    head, whole = make("head", data=tmp_path / "data"), make("all", data=tmp_path / "data")
    less = ["--train-steps", 4, "--batch-size", 16, "--deterministic"]
    paths = {"backbone.keras": file, "jobs/head": head.directory}
    for job, command in zip((head, whole), commands, strict=True):
        assert command[:4] == [
            "--data-dir",
            "data/cifar10",
            "--job-dir",
            f"jobs/{job.directory.name}",
        ]
        given = [paths.get(word, word) for word in command[4:]]
        job.start("chief", flags=[*given, *less])
        assert job.wait(600) == {"chief-0": 0}, job.output()
        assert job.output().count(f"--init-from {given[given.index('--init-from') + 1]}: ") == 1
        file.unlink(missing_ok=True)
    assert (
        "260 of 262 weights from the file into layer 'backbone'; by name and shape it has no"
        in head.output()
    )
    assert "262 of 262 weights from the checkpoint of step 4" in whole.output()
    (kernel,) = [name for name in head.variables(4) if "SConv1" in name]
    before = pretrained.get_layer("Conv1").kernel.numpy()
    np.testing.assert_array_equal(head.variables(4)[kernel], before)
    # Of four steps of Adam at 0.0001.
    assert 0 < np.abs(whole.variables(4)[kernel] - before).max() <= 4 * 1.1e-4
    heads = [
        next(job.variables(4)[n] for n in job.variables(4) if "Shead.Skernel" in n)
        for job in (head, whole)
    ]
    assert 0 < np.abs(heads[0] - heads[1]).max() <= 4 * 1.1e-4
