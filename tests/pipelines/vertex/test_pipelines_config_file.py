import pytest

from common.errors import UserError
from pipelines import submit
from pipelines.vertex import config_file


def test_the_command_line_wins(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(
        "{source: [gs://b/a], env: [A=b], project: one-project, cache: false, trainer_flags: [--model, cnn]}"
    )
    args = config_file.parse(
        submit._parser(), ["--config", str(path), "--source", "gs://b/c", "--project", "other-one"]
    )
    assert (args.source, args.project, args.env) == (["gs://b/c"], "other-one", ["A=b"])
    assert args.cache is False and args.trainer_flags == ["--model", "cnn"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "a file of flags has one a line"),
        ("projekt: a", "unknown key 'projekt'; did you mean 'project'"),
        ("yes: true", "unknown key 'True'"),
        ("'yes': true", "unknown key 'yes'"),
        ("project: {a: b}", "is no value of --project"),
        ("project: [a, b]", "is no value of --project"),
        ("project: true", "project: true, but it takes a value"),
        ("max_restarts: -1", "'-1' is not a whole number"),
        ("project: a\nproject: b", "'project' stands there twice"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_name(tmp_path, text, message):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        config_file.parse(submit._parser(), ["--config", str(path)])
    with pytest.raises(UserError, match="cannot be read"):
        config_file.parse(submit._parser(), ["--config", str(tmp_path / "gone.yaml")])
