from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.train.backends.probe import usable_gpus
from components.train.backends.resources import Part, divide, divide_all
from components.train.cluster.cluster_file import Cluster
from components.train.cluster.keys import Accelerator, Pool
from trainer.base.errors import UserError

SYNC = Cluster(strategy="multi_worker_mirrored", chief=Pool(), worker=Pool(replicas=2))
PS = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(replicas=2), ps=Pool(), evaluator=Pool())
EVALUATED = Cluster(strategy="mirrored", chief=Pool(), evaluator=Pool())


def with_gpus(count: int) -> Cluster:
    gpus = Accelerator(type="NVIDIA_TESLA_T4", count=count)
    worker = Pool(replicas=2, accelerator=gpus)
    return Cluster(strategy="multi_worker_mirrored", chief=Pool(accelerator=gpus), worker=worker)


def everybody(cluster: Cluster) -> list[tuple[str, int]]:
    return [(role, index) for role, pool in cluster.pools.items() for index in range(pool.replicas)]


@pytest.mark.parametrize(("cores", "threads"), [(8, "2"), (7, "1"), (1, "1")])
def test_cores_go_to_the_replicas_that_compute(cores: int, threads: str):
    division = divide(PS, cores=cores, gpus=())
    assert {division.env(role, 0)["TRAINER_THREADS"] for role in PS.pools} == {threads}
    assert division.notes == (f"cores: {cores}, replicas that compute: 4, threads of each: {threads}",)
    assert "CUDA_VISIBLE_DEVICES" not in division.env("chief", 0)


GIVEN_OUT = [
    (with_gpus(2), "02579ab", ["0, 2", "5, 7", "9, a"]),
    (SYNC, "0123456", ["0, 1", "2, 3", "4, 5"]),
    (SYNC, "0", ["", "", ""]),
    (PS, "0123", ["", "0", "1", "", "2"]),
    (EVALUATED, "0", ["0", ""]),
    (EVALUATED, "01", ["0", "1"]),
    (EVALUATED, "0123", ["0, 1, 2", "3"]),
]


@pytest.mark.parametrize(("cluster", "gpus", "seen"), GIVEN_OUT)
def test_every_replica_sees_the_gpus_that_are_its_own_and_all_is_told(cluster: Cluster, gpus: str, seen: list[str]):
    division = divide(cluster, cores=4, gpus=tuple(gpus))
    own = dict(zip(everybody(cluster), seen, strict=True))
    assert [division.env(*who)["CUDA_VISIBLE_DEVICES"] for who in own] == [ids.replace(" ", "") for ids in seen]
    says = [f"{role}/{index} has GPU {ids}" for (role, index), ids in own.items() if ids]
    if unused := sorted(set(gpus) - set("".join(seen))):
        says += [f"GPU {', '.join(unused)}: unused, as all that compute have as many as they can use and are alike"]
    assert division.notes[1:] == tuple(says)


def test_more_gpus_than_there_are_is_refused_with_both_numbers_but_none_at_all_is_only_told():
    wants = r"asks for 6 GPUs \(chief/0 2, worker/0 2, worker/1 2\) and this machine has 4"
    with pytest.raises(UserError, match=wants):
        divide(with_gpus(2), cores=4, gpus=tuple("0123"))
    assert "this machine has none" in divide(with_gpus(2), cores=4, gpus=()).notes[1]


@pytest.mark.parametrize("strategy", ["one_device", "mirrored", "multi_worker_mirrored", "parameter_server"])
@given(data=st.data())
def test_no_replica_gets_a_gpu_twice_more_than_it_can_use_or_others_than_its_peers(strategy: str, data: st.DataObject):
    pools = {"multi_worker_mirrored": ["worker"], "parameter_server": ["worker", "ps"]}.get(strategy, [])
    pools += data.draw(st.sampled_from([[], ["evaluator"]]))
    sizes = {role: 1 if role == "evaluator" else data.draw(st.integers(1, 3)) for role in pools}
    cluster = Cluster(strategy=strategy, chief=Pool(), **{role: Pool(replicas=n) for role, n in sizes.items()})
    number = data.draw(st.integers(1, 3))
    parts = [
        Part(name=f"host {k}", cores=4, gpus=[f"{k}-{i}" for i in range(data.draw(st.integers(0, 9)))], replicas=here)
        for k in range(number)
        if (here := everybody(cluster)[k::number])
    ]
    counts: dict[str, set[int]] = {}
    for part, division in zip(parts, divide_all(cluster, parts), strict=True):
        given_out = [gpu for share in (division.gpus or {}).values() for gpu in share]
        assert len(given_out) == len(set(given_out)) and set(given_out) <= set(part.gpus)
        assert all(gpu in " ".join(division.notes) for gpu in part.gpus)
        for role, index in part.replicas:
            seen = division.env(role, index).get("CUDA_VISIBLE_DEVICES", "")
            counts.setdefault(role, set()).add(len(list(filter(None, seen.split(",")))))
    assert all(len(each) == 1 for each in counts.values())
    if strategy == "multi_worker_mirrored":
        assert counts["chief"] == counts["worker"]
    if strategy == "parameter_server":
        assert counts["chief"] == counts["ps"] == {0} and max(counts["worker"]) <= 1
    if strategy == "one_device":
        assert max(counts["chief"]) <= 1


def hosts(*each: tuple[str, list[tuple[str, int]]]) -> list[Part]:
    """Host a, host b and so on, by the GPUs and the replicas of each."""
    return [Part(name=f"host {n}", cores=4, gpus=tuple(g), replicas=r) for n, (g, r) in zip("abc", each, strict=False)]


def test_hosts_of_which_only_some_have_gpus_cannot_compute_every_step_together():
    parts = hosts(("01", [("chief", 0), ("worker", 0)]), ("", [("worker", 1)]))
    with pytest.raises(UserError, match=r"host b has no GPU and others have: .* leave it out, or remove accelerator"):
        divide_all(with_gpus(1), parts)
    assert "host b has none" in divide_all(with_gpus(1), parts[1:])[0].notes[1]


def test_who_has_no_gpus_and_needs_none_takes_none_from_the_others():
    servers = Cluster(strategy="parameter_server", chief=Pool(), worker=Pool(), ps=Pool())
    _, worker = divide_all(servers, hosts(("", [("chief", 0), ("ps", 0)]), ("01", [("worker", 0)])))
    assert worker.env("worker", 0)["CUDA_VISIBLE_DEVICES"] == "0"
    chief, evaluator = divide_all(EVALUATED, hosts(("01", [("chief", 0)]), ("", [("evaluator", 0)])))
    assert chief.env("chief", 0)["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "CUDA_VISIBLE_DEVICES" not in evaluator.env("evaluator", 0)


def test_gpus_are_those_that_are_visible_or_else_those_that_the_driver_lists(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
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
