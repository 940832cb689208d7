import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read
from components.train.cluster.notes import Source, refuse_changes
from components.train.cluster.strategies import job_flags, resolve
from trainer.base.errors import UserError

CUSTOM = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4"}


@pytest.fixture
def source(tmp_path: Path):
    def write(**values: Any) -> Source:
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump({"trainingInput": values}))
        return read(path)

    return write


def notes(found: Source) -> list[str]:
    return [f"{'REPLACED ' if note.changes else ''}{note}" for note in found.notes]


def test_without_a_tier_it_is_basic_and_counts_may_be_text_and_zero(source):
    found = source(region="us-central1")
    assert found.values == {"chief": {"machine": "n1-standard-4"}}
    assert (found.region, found.notes) == ("us-central1", ())
    found = source(**CUSTOM, workerType="n1-standard-4", workerCount="2", parameterServerCount=0)
    assert found.values["worker"] == {"machine": "n1-standard-4", "replicas": 2}
    assert (list(found.values), found.notes) == (["chief", "worker"], ())


STANDARD = {"machine": "n1-standard-4"}
DISK = {"diskConfig": {"bootDiskType": "pd-standard", "bootDiskSizeGb": 300}}
# What the file says, what it becomes beside the chief, and what is told of it.
TRANSLATED = [
    *(
        (
            {**CUSTOM, f"{prefix}Type": "n1-standard-4"},
            {},
            f"trainingInput.{prefix}Type: without {prefix}Count there are none, as on AI Platform; add '{prefix}Count: "
            "1' if one is meant",
        )
        for prefix in ("worker", "parameterServer", "evaluator")
    ),
    (
        {**CUSTOM, "workerConfig": DISK, "evaluatorCount": 0},
        {"disk": {"type": "pd-ssd", "size_gb": 100}},
        "trainingInput.workerConfig: not used, as there are no such replicas",
    ),
    (
        {"scaleTier": "CUSTOM", "masterType": "complex_model_l_gpu"},
        {"chief": {"machine": "g2-standard-96", "accelerator": {"type": "NVIDIA_L4", "count": 8}}},
        "REPLACED trainingInput.masterType: complex_model_l_gpu was n1-standard-32 with 8 NVIDIA_TESLA_K80, which is no "
        "longer offered; replaced by g2-standard-96 with 8 NVIDIA_L4",
    ),
    (
        {"scaleTier": "CUSTOM", "masterType": "large_model"},
        {"chief": {"machine": "n1-highmem-8"}},
        "trainingInput.masterType: large_model is n1-highmem-8",
    ),
    (
        {**CUSTOM, "parameterServerType": "n1-highmem-2", "parameterServerCount": 1},
        {"ps": {"machine": "n1-highmem-2", "replicas": 1}, "worker": {**STANDARD, "replicas": 1}},
        "REPLACED trainingInput.workerCount: none, and TensorFlow 2's chief hands out the work without training; one "
        "like the chief is added",
    ),
    (
        {"network": "projects/1/global/networks/mine"},
        {},
        "REPLACED trainingInput.network: not carried over; a job that must run in this network cannot be submitted from "
        "here",
    ),
    ({"scheduling": {"maxRunningTime": "3600.5s"}}, {"scheduling": {"timeout": "3601s"}}, None),
    ({**CUSTOM, "masterConfig": DISK}, {"disk": {"type": "pd-standard", "size_gb": 300}}, None),
    (
        {**CUSTOM, "workerType": "n1-standard-4", "workerCount": 1, "masterConfig": DISK},
        {"worker": {**STANDARD, "replicas": 1}, "disk": {"type": "pd-ssd", "size_gb": 300}},
        "REPLACED trainingInput.diskConfig: differs between the pools; all get 300 GB of pd-ssd",
    ),
]


@pytest.mark.parametrize(("values", "becomes", "note"), TRANSLATED)
def test_what_a_file_becomes_is_told_and_strict_refuses_what_is_replaced(source, values, becomes, note):
    found = source(**values)
    assert found.values == {"chief": STANDARD, **becomes}
    assert notes(found) == ([note] if note else [])
    Cluster.of(resolve(found))
    if note and note.startswith("REPLACED"):
        with pytest.raises(UserError, match=r"--strict allows no replacement: trainingInput\..* leave --strict out"):
            refuse_changes(found.name, found.notes)
    else:
        refuse_changes(found.name, found.notes)


def test_workers_of_parameter_servers_become_as_many_as_there_were_gpus(source):
    gpus = {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": 2}}
    pools = {"workerType": "n1-standard-8", "workerCount": 3, "workerConfig": gpus}
    found = source(**CUSTOM, **pools, parameterServerType="n1-standard-4", parameterServerCount=1)
    worker = Cluster.of(resolve(found)).worker
    assert (worker.replicas, worker.machine, worker.gpus) == (6, "n1-standard-8", 1)


def test_arguments_and_job_directory_become_flags_unless_others_are_given(source):
    found = source(args=["--train-steps", 1000, "--sync"], jobDir="gs://bucket/a")
    assert job_flags(found, []) == ["--train-steps", "1000", "--job-dir", "gs://bucket/a"]
    assert job_flags(found, ["--train-steps", "5"]) == ["--train-steps", "5", "--job-dir", "gs://bucket/a"]
    assert job_flags(found, ["--job-dir=jobs/b"]) == ["--job-dir=jobs/b"]
    assert "trainingInput.args: not used, as flags are given" in notes(resolve(found, ["--train-steps", "5"]))[-1]
    assert not resolve(found, found.args).notes


GPU = {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": 3}}
REFUSED = [
    ({"scaleTier": "STANDARD_2"}, "trainingInput.scaleTier: unknown value 'STANDARD_2'; did you mean 'STANDARD_1'?"),
    ({"scaleTier": "CUSTOM"}, "trainingInput.masterType: missing, and scaleTier: CUSTOM needs it; add 'masterType:"),
    ({"scaleTier": "BASIC_TPU"}, "BASIC_TPU.masterType: cloud_tpu is a TPU"),
    ({"masterType": "n1-standard-4"}, "trainingInput.masterType: only with scaleTier: CUSTOM, and it is BASIC"),
    ({"masterConfig": GPU}, "masterConfig.acceleratorConfig: only with CUSTOM, and scaleTier is BASIC; write CUSTOM"),
    ({**CUSTOM, "workerCount": 2}, "trainingInput.workerType: missing, and workerCount is 2; add 'workerType:"),
    ({**CUSTOM, "evaluatorType": "n1-standard-4", "evaluatorCount": 2}, "trainingInput.evaluatorCount: 2 is not a"),
    ({**CUSTOM, "masterType": "complex_model_xl"}, "masterType: unknown machine type 'complex_model_xl'"),
    ({**CUSTOM, "masterType": "n1-standard-3"}, "masterType: unknown machine type 'n1-standard-3'"),
    ({**CUSTOM, "masterType": "a2-highgpu-1g"}, "add 'acceleratorConfig: {type: NVIDIA_TESLA_A100"),
    ({**CUSTOM, "masterConfig": GPU}, "masterConfig.acceleratorConfig: n1-standard-4 with 3 NVIDIA_TESLA_T4 is not"),
    (
        {**CUSTOM, "masterConfig": {"acceleratorConfig": {"type": "TPU_V2", "count": 8}}},
        "trainingInput.masterConfig.acceleratorConfig.type: TPU_V2 is a TPU",
    ),
    (
        {**CUSTOM, "masterType": "standard_gpu", "masterConfig": GPU},
        "trainingInput.masterConfig.acceleratorConfig: standard_gpu takes none; give masterType a Compute Engine type",
    ),
    ({"hyperparameters": {"maxTrials": 4}}, "trainingInput.hyperparameters: a search over many trials is not supp"),
    ({"scheduling": {"maxRunningTime": "1h"}}, "trainingInput.scheduling.maxRunningTime: '1h' is not a duration"),
    ({"scheduling": {"maxRunningTime": "0s"}}, "trainingInput.scheduling.maxRunningTime: '0s' is not a duration"),
    ({"args": "--sync"}, "trainingInput.args: '--sync' is not a list; write a '- ' before each item"),
    ({"args": ["--x", None]}, "trainingInput.args[1]: nothing is not a text; put it in quotes"),
    ({"masterCount": 1}, "trainingInput: unknown key 'masterCount'; did you mean"),
]


@pytest.mark.parametrize(("values", "says"), REFUSED)
def test_what_cannot_be_had_is_refused_by_its_own_name(source, values: dict, says: str):
    with pytest.raises(UserError, match=re.escape(says)):
        source(**values)


def test_keys_outside_training_input_are_told_where_they_belong(tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_text("scaleTier: BASIC\n")
    with pytest.raises(
        UserError, match="top level: scaleTier belongs under trainingInput; add the line 'trainingInput:'"
    ):
        read(path)


def test_tier_or_machine_is_a_cluster_by_its_name_unless_there_is_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("STANDARD_1", "standard-1", "Standard_1"):
        assert Cluster.load(name).replicas == 8
    cluster = Cluster.load("complex_model_m_gpu")
    assert (cluster.strategy, cluster.chief.machine, cluster.chief.gpus) == ("mirrored", "n1-standard-16", 4)
    monkeypatch.chdir(tmp_path)
    Path("BASIC").write_text("strategy: one_device\nchief: {machine: e2-standard-4}")
    assert Cluster.load("BASIC").chief.machine == "e2-standard-4"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("STANDRAD_1", "unknown cluster file or scale tier 'STANDRAD_1'; did you mean 'STANDARD_1'?"),
        ("CUSTOM", "CUSTOM: trainingInput.masterType: missing"),
        ("BASIC_TPU", "is a TPU"),
        ("cloud_tpu", "is a TPU"),
        ("a\0b", "cluster file a\0b: "),
    ],
)
def test_name_that_means_nothing_is_refused(name: str, says: str):
    with pytest.raises(UserError, match=re.escape(says)):
        Cluster.load(name)


def test_replacements_are_told_whoever_loads_the_cluster(capsys: pytest.CaptureFixture):
    Cluster.load("BASIC_GPU")
    out, err = capsys.readouterr()
    assert err.startswith(
        "replaced: BASIC_GPU: BASIC_GPU.masterType: standard_gpu was n1-standard-8 with 1 NVIDIA_TESLA_K80"
    )
    assert not out
