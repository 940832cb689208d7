from pathlib import Path

import pytest
import yaml

from components.train.cluster.cluster_file import Cluster
from components.train.cluster.lookup import read

CASES = yaml.safe_load(Path(__file__).with_name("translations.yaml").read_text())


def source(path, **values):
    path = path / "config.yaml"
    path.write_text(yaml.safe_dump({"trainingInput": values}))
    return read(path)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_translation_is_noted(tmp_path, case):
    """Notes what a file of AI Platform becomes, and refuses replacements with --strict."""
    translated = source(tmp_path, **case["file"])
    expected = {"strategy": "one_device", "chief": {"machine": "n1-standard-4"}}
    assert translated.cluster == Cluster.read({**expected, **case.get("becomes", {})})
    assert translated.notes == ([case["says"]] if "says" in case else [])
    assert translated.replacements == ([case["changes"]] if "changes" in case else [])


def test_arguments_and_job_directory_become_flags(tmp_path):
    config = source(tmp_path, args=["--train-steps", 1000, "--sync"], jobDir="gs://bucket/a")
    assert config.trainer_flags([]) == ["--train-steps", "1000", "--job-dir", "gs://bucket/a"]
    assert not config.notes
    assert config.trainer_flags(["--job-dir=jobs/b"]) == ["--job-dir=jobs/b"]
    assert config.notes == ["trainingInput.args: not used, as flags are given to the trainer here"]
