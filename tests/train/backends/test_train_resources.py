import pytest
from train_fakes import EVALUATED, PS, SYNC

from components.train.backends.host_agent import usable_gpus
from components.train.backends.resources import Machine, divide
from components.train.cluster.cluster_file import Accelerator, Pool
from tests.errors import user_error

TWO_GPUS = Pool(accelerator=Accelerator(type="NVIDIA_TESLA_T4", count=2))
WITH_GPUS = SYNC.model_copy(
    update={"chief": TWO_GPUS, "worker": TWO_GPUS.model_copy(update={"replicas": 2})}
)
EVALUATED_PS = PS.model_copy(update={"worker": Pool(replicas=2), "evaluator": Pool()})
MIRRORED = EVALUATED.model_copy(update={"strategy": "mirrored"})


def machine(replicas, gpus="", cores=4):
    return Machine(name="b", cores=cores, gpus=tuple(gpus), replicas=replicas)


@pytest.mark.parametrize(("cores", "threads"), [(9, "2"), (1, "1")])
def test_cores_go_to_computing_replicas(cores, threads):
    shares = divide(EVALUATED_PS, [machine(EVALUATED_PS.members, cores=cores)])
    assert list(shares.values()) == [{"TRAINER_THREADS": threads}] * 5


@pytest.mark.parametrize(
    ("cluster", "gpus", "visible"),
    [
        (WITH_GPUS, "02579ab", ["0,2", "5,7", "9,a"]),
        (SYNC, "0123456", ["0,1", "2,3", "4,5"]),
        (SYNC, "0", ["", "", ""]),
        (EVALUATED_PS, "0123", ["", "0", "1", "", ""]),
        (MIRRORED, "0123", ["0,1,2,3", ""]),
    ],
)
def test_replica_sees_only_its_gpus(cluster, gpus, visible):
    shares = divide(cluster, [machine(cluster.members, gpus)])
    assert [share["CUDA_VISIBLE_DEVICES"] for share in shares.values()] == visible


@pytest.mark.parametrize("gpus", ["", "0"])
def test_too_few_gpus_are_refused(gpus):
    *others, last = WITH_GPUS.members
    with user_error(f"asks for 2 GPUs on b, which has {len(gpus)}"):
        divide(WITH_GPUS, [machine(others, "0123"), machine([last], gpus)])


@pytest.mark.parametrize(
    ("visible", "script", "ids"),
    [
        ("1,3", "echo 0", ["1", "3"]),
        ("", "echo 0", []),
        (None, "echo 0\necho 1", ["0", "1"]),
        (None, "echo no devices\nexit 6", []),
    ],
)
def test_usable_gpus_are_found(monkeypatch, tmp_path, visible, script, ids):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert usable_gpus() == ids
