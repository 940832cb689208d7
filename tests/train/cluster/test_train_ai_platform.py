import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from common.errors import UserError
from components.train.cluster.ai_platform import LEGACY_MACHINES
from components.train.cluster.cluster_file import Cluster, Source
from components.train.cluster.lookup import load_cluster, read

CASES = yaml.safe_load(Path(__file__).with_name("translations.yaml").read_text())


def source(path: Path, **values: Any) -> Source:
    path = path / "config.yaml"
    path.write_text(yaml.safe_dump({"trainingInput": values}))
    return read(path)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_translation_is_noted(tmp_path: Path, case: dict[str, Any]):
    """Notes what a file of AI Platform becomes, and refuses replacements with --strict."""
    translated = source(tmp_path, **case["file"])
    expected = {
        "strategy": "one_device",
        "chief": {"machine": "n1-standard-4"},
        **case.get("becomes", {}),
    }
    assert translated.cluster == Cluster.read(expected)
    assert translated.notes == ([case["says"]] if "says" in case else [])
    assert translated.replacements == ([case["changes"]] if "changes" in case else [])
    is_refused = pytest.raises(
        UserError, match=r"--strict allows no replacement: trainingInput\..* leave --strict out"
    )
    with is_refused if "changes" in case else contextlib.nullcontext():
        translated.refuse_replacements()


def test_arguments_and_job_directory_become_flags(tmp_path: Path):
    config = source(tmp_path, args=["--train-steps", 1000, "--sync"], jobDir="gs://bucket/a")
    assert config.trainer_flags([]) == ["--train-steps", "1000", "--job-dir", "gs://bucket/a"]
    assert not config.notes
    assert config.trainer_flags(["--job-dir=jobs/b"]) == ["--job-dir=jobs/b"]
    assert config.notes == ["trainingInput.args: not used, as flags are given to the trainer here"]
    config = source(tmp_path, jobDir="gs://bucket/a")
    assert config.trainer_flags(["--sync"]) == ["--job-dir", "gs://bucket/a"]
    assert not config.notes


@pytest.mark.parametrize("name", sorted(LEGACY_MACHINES.keys() - {"cloud_tpu"}))
def test_legacy_machine_is_offered(name: str):
    assert load_cluster(name).chief.machine


def test_tier_is_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    for name in ("STANDARD_1", "standard-1"):
        assert load_cluster(name).replicas == 8
    load_cluster("BASIC_GPU")
    assert (
        "replaced: BASIC_GPU: trainingInput.masterType: standard_gpu (n1-standard-8 "
        in capsys.readouterr().err
    )
    monkeypatch.chdir(tmp_path)
    Path("BASIC").write_text("strategy: one_device\nchief: {machine: e2-standard-4}")
    assert load_cluster("BASIC").chief.machine == "e2-standard-4"
