from pathlib import Path

import pytest
from train_fakes import planned

from common.errors import UserError
from components.train.backends.backend import Job
from components.train.backends.host_agent import usable_gpus
from components.train.backends.program import Program
from components.train.backends.resources import Machine, divide
from components.train.cluster.cluster_file import Accelerator, Cluster, Pool

SYNC = Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=2))
PS = Cluster(
    strategy="parameter_server",
    chief=Pool(),
    worker=Pool(replicas=2),
    ps=Pool(replicas=2),
    evaluator=Pool(),
)
MIRRORED = Cluster(strategy="mirrored", chief=Pool(), evaluator=Pool())
GPUS = Pool(replicas=2, accelerator=Accelerator(type="NVIDIA_TESLA_T4", count=2))
WITH_GPUS = Cluster(
    strategy="multi_worker_mirrored", chief=GPUS.model_copy(update={"replicas": 1}), worker=GPUS
)


def on_one(cluster: Cluster, gpus: str = "", cores: int = 4) -> list[dict[str, str]]:
    """Returns the share of each replica of one machine."""
    machine = Machine(name="this machine", cores=cores, gpus=tuple(gpus), replicas=cluster.members)
    return list(divide(cluster, [machine]).values())


@pytest.mark.parametrize(("cores", "threads"), [(9, "2"), (1, "1")])
def test_cores_go_to_computing_replicas(cores: int, threads: str):
    assert on_one(PS, cores=cores) == [{"TRAINER_THREADS": threads}] * 6


@pytest.mark.parametrize(
    ("cluster", "gpus", "visible"),
    [
        (WITH_GPUS, "02579ab", ["0,2", "5,7", "9,a"]),
        (SYNC, "0123456", ["0,1", "2,3", "4,5"]),
        (SYNC, "0", ["", "", ""]),
        (PS, "0123", ["", "0", "1", "", "", ""]),
        (MIRRORED, "0123", ["0,1,2,3", ""]),
    ],
)
def test_replica_sees_only_its_gpus(cluster: Cluster, gpus: str, visible: list[str]):
    assert [share["CUDA_VISIBLE_DEVICES"] for share in on_one(cluster, gpus)] == visible


def test_too_few_gpus_are_refused():
    with pytest.raises(UserError, match="asks for 6 GPUs on this machine, which has 4"):
        on_one(WITH_GPUS, "0123")


@pytest.mark.parametrize("worker", [Pool(), Pool(accelerator=Accelerator(type="NVIDIA_TESLA_T4"))])
def test_only_servers_need_no_gpu(worker: Pool):
    cluster = Cluster(strategy="parameter_server", chief=Pool(), worker=worker, ps=Pool())
    servers = Machine(name="a", cores=4, gpus=(), replicas=[("chief", 0), ("ps", 0)])
    workers = Machine(name="b", cores=4, gpus=("0", "1"), replicas=[("worker", 0)])
    assert divide(cluster, [servers, workers])["worker", 0]["CUDA_VISIBLE_DEVICES"] == "0"


def test_host_without_gpus_is_refused():
    with_some = Machine(name="a", cores=4, gpus="0123", replicas=WITH_GPUS.members[:2])
    without = Machine(name="b", cores=4, gpus=(), replicas=WITH_GPUS.members[2:])
    with pytest.raises(UserError, match="asks for 2 GPUs on b, which has 0"):
        divide(WITH_GPUS, [with_some, without])


def test_machine_without_gpus_is_noted(tmp_path: Path):
    job = Job(cluster=WITH_GPUS, program=Program(command=("true",), job_dir="job"))
    plan = planned(job, tmp_path)
    assert "no GPUs here, but the cluster file asks for some: cores compute instead" in plan.notes


def test_own_program_gets_thread_variables(tmp_path: Path):
    env = (
        planned(Job(cluster=SYNC, program=Program(command=("true",), job_dir="job")), tmp_path)
        .replicas[0]
        .env
    )
    names = ("TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "TF_NUM_INTEROP_THREADS")
    assert [env[name] for name in names] == ["1", "1", "4"]


@pytest.mark.parametrize(("visible", "ids"), [("1,3", ["1", "3"]), ("", []), ("-1", [])])
def test_environment_limits_visible_gpus(
    monkeypatch: pytest.MonkeyPatch, visible: str, ids: list[str]
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert usable_gpus() == ids


@pytest.mark.parametrize(
    ("script", "ids"), [("echo 0\necho 1", ["0", "1"]), ("echo no devices\nexit 6", [])]
)
def test_driver_lists_visible_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, ids: list[str]
):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert usable_gpus() == ids
