from pathlib import Path

import pytest
from train_fakes import planned

from common.errors import UserError
from components.train.backends.backend import Job
from components.train.backends.host_agent import usable_gpus
from components.train.backends.program import Program
from components.train.backends.resources import Machine, divide
from components.train.cluster.cluster_file import Accelerator, Cluster, Pool
from trainer.options import Options, parse

SYNC = Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=2))
PS = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(replicas=2), ps=Pool(), evaluator=Pool())
EVALUATED = Cluster(strategy="mirrored", chief=Pool(), evaluator=Pool())


def with_gpus(count: int) -> Cluster:
    gpus = Accelerator(type="NVIDIA_TESLA_T4", count=count)
    worker = Pool(replicas=2, accelerator=gpus)
    return Cluster(strategy="multi_worker_mirrored", chief=Pool(accelerator=gpus), worker=worker)


def on_one(cluster: Cluster, gpus: str = "", cores: int = 4) -> dict[tuple[str, int], dict[str, str]]:
    return divide(cluster, [Machine(name="this machine", cores=cores, gpus=tuple(gpus), replicas=cluster.members)])


@pytest.mark.parametrize(("cores", "threads"), [(8, 2), (7, 1), (1, 1)])
def test_cores_go_to_replicas_that_compute(cores: int, threads: int):
    shares = on_one(PS, cores=cores)
    assert {share["TRAINER_THREADS"] for share in shares.values()} == {str(threads)}
    assert "CUDA_VISIBLE_DEVICES" not in shares["chief", 0]


@pytest.mark.parametrize(
    ("cluster", "gpus", "visible"),
    [
        (with_gpus(2), "02579ab", ["0,2", "5,7", "9,a"]),
        (SYNC, "0123456", ["0,1", "2,3", "4,5"]),
        (SYNC, "0", ["", "", ""]),
        (PS, "0123", ["", "0", "1", "", ""]),
        (EVALUATED, "0123", ["0,1,2,3", ""]),
    ],
)
def test_replica_sees_only_its_gpus(cluster: Cluster, gpus: str, visible: list[str]):
    shares = on_one(cluster, gpus)
    assert [shares[who]["CUDA_VISIBLE_DEVICES"] for who in cluster.members] == visible


def test_too_few_gpus_are_refused_but_none_is_noted(tmp_path: Path):
    with pytest.raises(UserError, match="asks for 6 GPUs on this machine, which has 4"):
        on_one(with_gpus(2), "0123")
    for cluster, has_note in ((with_gpus(2), True), (SYNC, False)):
        job = Job(cluster=cluster, program=Program(command=("true",), job_dir="job"))
        notes = " ".join(planned(job, tmp_path).notes)
        assert ("no GPUs here, but the cluster file asks for some: cores compute instead" in notes) is has_note


@pytest.mark.parametrize(
    ("trainer", "threads"),
    [(None, ["1", "1", "4"]), (parse(["--data-dir=d", "--job-dir=j", "--train-steps=1"]), [None, None, None])],
)
def test_own_program_leaves_cores_to_others(tmp_path: Path, trainer: Options | None, threads: list[str | None]):
    program = Program(command=("true",), job_dir="job", trainer=trainer)
    [chief, *_] = planned(Job(cluster=SYNC, program=program), tmp_path).replicas
    names = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS")
    assert list(map(chief.env.get, names)) == threads


def test_hosts_with_and_without_gpus_are_refused_together():
    chief, *workers = SYNC.members
    with_some = Machine(name="host a", cores=4, gpus=("0", "1"), replicas=[chief, workers[0]])
    without = Machine(name="host b", cores=4, gpus=(), replicas=[workers[1]])
    with pytest.raises(UserError, match="asks for 1 GPUs on host b, which has 0"):
        divide(with_gpus(1), [with_some, without])
    servers = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(), ps=Pool())
    chief, worker, server = servers.members
    without = Machine(name="host a", cores=4, gpus=(), replicas=[chief, server])
    with_some = Machine(name="host b", cores=4, gpus=("0", "1"), replicas=[worker])
    assert divide(servers, [without, with_some])[worker]["CUDA_VISIBLE_DEVICES"] == "0"


def test_visible_gpus_are_those_of_the_environment_or_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for visible, ids in (("1,3", ["1", "3"]), ("", []), ("-1", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert usable_gpus() == ids
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert usable_gpus() == []
    program = tmp_path / "nvidia-smi"
    for script, ids in (("echo 0\necho 1", ["0", "1"]), ("echo no devices\nexit 6", [])):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        assert usable_gpus() == ids
