"""Keys of a run, from wherever they come."""

import pytest

from common.errors import UserError
from pipelines import submit
from pipelines.cloud_options import KEYS


def read(*words):
    return KEYS.read(submit._parser().parse_args(list(map(str, words))))


@pytest.fixture
def file(tmp_path):
    return tmp_path / "run.yaml"


def test_flags_win_over_settings_over_file(file):
    file.write_text(
        """{source: [gs://b/a], env: [A=b], project: one-project, location: here, train_steps: 5,
        fail_on_reject: true, trainer_flags: [--momentum, 0.5]}"""
    )
    settings = ["--set", "location=there", "--set", "train_steps=6", "--set", "labels=[a=b]"]
    config = read("--config", file, *settings, "--source", "gs://b/c", "--train-steps", "7")
    assert (config.source, config.env, config.project) == (("gs://b/c",), ("A=b",), "one-project")
    assert (config.location, config.train_steps, config.labels) == ("there", 7, ("a=b",))
    assert config.trainer_flags == ("--momentum", "0.5")
    assert config.fail_on_reject and config.shards is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "is not a mapping; write 'key: value' of "),
        ("projekt: a", "unknown key 'projekt'; did you mean 'project'"),
        ("yes: true", "unknown key 'yes'"),
        ("project: [a, b]", "project: .* is not a text"),
        ("project: true", "project: .* is not a text"),
        ("project:", "project: nothing"),
        ("max_restarts: -1", "max_restarts: '-1' is not a whole number"),
        ("scheduling: SPO", "scheduling: unknown value 'SPO'; did you mean 'SPOT'"),
        ("project: a\nproject: b", "'project' stands there twice"),
    ],
)
def test_mistake_in_file_names_file(file, text, message):
    file.write_text(text)
    with pytest.raises(UserError, match=f"run.yaml.*({message})"):
        read("--config", file)


@pytest.mark.parametrize(
    ("text", "message"),
    [("shards", "nothing stands there; write a value"), ("shrds=1", "did you mean 'shards'")],
)
def test_mistake_in_setting_is_shown(text, message):
    with pytest.raises(UserError, match=f"--set {text}: .*{message}"):
        read("--set", text)
