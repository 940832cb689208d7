from pathlib import Path
from typing import Any

import pytest
import yaml

from common.errors import UserError
from components.train.cluster.cluster_file import Cluster, Source
from components.train.cluster.lookup import load_cluster, read

CASES = yaml.safe_load(Path(__file__).with_name("translations.yaml").read_text())
CUSTOM = {"scaleTier": "CUSTOM", "masterType": "n1-standard-4"}


@pytest.fixture
def source(tmp_path: Path):
    def write(**values: Any) -> Source:
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump({"trainingInput": values}))
        return read(path)

    return write


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_translation_is_noted_and_strict_refuses_replacements(source, case: dict[str, Any]):
    translated = source(**case["file"])
    expected = {"strategy": "one_device", "chief": {"machine": "n1-standard-4"}, **case.get("becomes", {})}
    assert translated.cluster == Cluster.read(expected)
    assert translated.notes == ([case["says"]] if "says" in case else [])
    assert translated.replacements == ([case["changes"]] if "changes" in case else [])
    if "changes" in case:
        with pytest.raises(UserError, match=r"--strict allows no replacement: trainingInput\..* leave --strict out"):
            translated.refuse_replacements()
    else:
        translated.refuse_replacements()


def test_arguments_and_job_directory_become_flags(source):
    flags = source(args=["--train-steps", 1000, "--sync"], jobDir="gs://bucket/a")
    assert flags.trainer_flags([]) == ["--train-steps", "1000", "--job-dir", "gs://bucket/a"]
    assert flags.trainer_flags(["--job-dir=jobs/b"]) == ["--job-dir=jobs/b"]
    assert not source(args=["--train-steps", 1000]).notes
    assert flags.trainer_flags(["--train-steps", "5"]) == ["--train-steps", "5", "--job-dir", "gs://bucket/a"]
    assert flags.notes[-1] == "trainingInput.args: not used, as flags are given to the trainer here"


def test_name_of_tier_or_machine_is_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("STANDARD_1", "standard-1", "Standard_1"):
        assert load_cluster(name).replicas == 8
    cluster = load_cluster("complex_model_m_gpu")
    assert (cluster.strategy, cluster.chief.machine, cluster.chief.gpus) == ("mirrored", "n1-standard-16", 4)
    monkeypatch.chdir(tmp_path)
    Path("BASIC").write_text("strategy: one_device\nchief: {machine: e2-standard-4}")
    assert load_cluster("BASIC").chief.machine == "e2-standard-4"


def test_replacements_are_printed_by_load(capsys: pytest.CaptureFixture):
    load_cluster("BASIC_GPU")
    out, err = capsys.readouterr()
    assert err.startswith(
        "replaced: BASIC_GPU: trainingInput.masterType: standard_gpu (n1-standard-8 with 1 NVIDIA_TESLA_K80) is no"
    )
    assert not out
