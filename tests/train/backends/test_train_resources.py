from __future__ import annotations

from pathlib import Path

import pytest

from components.train.backends.resources import divide, usable_gpus
from components.train.cluster.cluster_file import Accelerator, Cluster, Pool
from trainer.base.errors import UserError

SYNC = Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=2))
PS = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(replicas=2), ps=Pool(), evaluator=Pool())


def with_gpus(chief: int, worker: int) -> Cluster:
    def pool(count: int, replicas: int) -> Pool:
        return Pool(replicas=replicas, accelerator=Accelerator(type="NVIDIA_TESLA_T4", count=count) if count else None)

    return Cluster(strategy="multi_worker_mirrored", chief=pool(chief, 1), worker=pool(worker, 2))


@pytest.mark.parametrize(("cores", "threads"), [(8, "2"), (7, "1"), (1, "1")])
def test_cores_go_to_the_replicas_that_compute(cores: int, threads: str):
    division = divide(PS, cores=cores, gpus=())
    assert {division.env(role, 0)["TRAINER_THREADS"] for role in PS.pools} == {threads}
    assert division.notes == (f"cores: {cores}, replicas that compute: 4, threads of each: {threads}",)
    assert "CUDA_VISIBLE_DEVICES" not in division.env("chief", 0)


def test_every_replica_sees_as_many_gpus_as_its_pool_asks_for_and_none_twice():
    division = divide(with_gpus(1, 2), cores=4, gpus=("0", "2", "5", "7", "9"))
    seen = [division.env(*who)["CUDA_VISIBLE_DEVICES"] for who in [("chief", 0), ("worker", 0), ("worker", 1)]]
    assert seen == ["0", "2,5", "7,9"]
    assert division.notes[1:] == ("chief/0 has GPU 0", "worker/0 has GPU 2, 5", "worker/1 has GPU 7, 9")


def test_gpus_that_nobody_asks_for_go_evenly_to_those_that_compute():
    division = divide(SYNC, cores=4, gpus=tuple("0123456"))
    assert [division.env("worker", i)["CUDA_VISIBLE_DEVICES"] for i in (0, 1)] == ["2,3", "4,5"]
    assert divide(PS, cores=4, gpus=tuple("0123")).env("ps", 0)["CUDA_VISIBLE_DEVICES"] == ""
    few = divide(SYNC, cores=4, gpus=("0",))
    assert few.env("chief", 0)["CUDA_VISIBLE_DEVICES"] == ""
    assert few.notes[1] == "1 GPUs for 3 replicas that compute: unused, as all must be alike"


def test_more_gpus_than_there_are_is_refused_with_both_numbers_but_none_at_all_is_only_told():
    with pytest.raises(UserError, match=r"asks for 5 GPUs \(chief 1 x 1, worker 2 x 2\) and this machine has 4"):
        divide(with_gpus(1, 2), cores=4, gpus=tuple("0123"))
    assert "this machine has none" in divide(with_gpus(1, 2), cores=4, gpus=()).notes[1]


@pytest.mark.parametrize(("visible", "ids"), [("1,3", ("1", "3")), ("", ()), ("-1", ())])
def test_visible_devices_are_what_may_be_used(monkeypatch: pytest.MonkeyPatch, visible: str, ids: tuple[str, ...]):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert usable_gpus() == ids


def test_driver_lists_gpus_where_nothing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert usable_gpus() == ()
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 0\necho 1\n")
    program.chmod(0o755)
    assert usable_gpus() == ("0", "1")
    program.write_text("#!/bin/sh\necho no devices\nexit 6\n")
    assert usable_gpus() == ()
