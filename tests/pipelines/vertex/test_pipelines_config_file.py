import pathlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipelines import submit
from pipelines.vertex import config_file
from trainer.base.errors import UserError

# Of each kind of flag some, with words for the command line.
FLAGS = {
    "project": ["--project", "my-project"],
    "source": ["--source", "gs://b/a", "gs://b/c"],
    "cache": ["--no-cache"],
    "deterministic": ["--no-deterministic"],
    "web_access": ["--web-access"],
    "env": ["--env", "A=b", "C=d e"],
    "max_restarts": ["--max-restarts", "3"],
    "trainer_flags": ["--", "--checkpoint-secs", "60"],
}


@given(st.permutations(sorted(FLAGS)), st.integers(0, len(FLAGS)), st.integers(0, len(FLAGS)))
def test_what_is_saved_means_the_same_when_it_is_read_whatever_else_is_given_again(tmp_path_factory, names, one, two):
    """The first names are saved; some of them are given again beside the file."""
    path = tmp_path_factory.mktemp("config") / "run.yaml"

    def words(chosen: list[str]) -> list[str]:
        return [word for name in sorted(chosen, key="trainer_flags".__eq__) for word in FLAGS[name]]

    parser = submit._parser()
    expected = vars(config_file.parse(parser, ["--save", str(path), *words(names[:one])]))
    found = vars(config_file.parse(parser, ["--config", str(path), *words(names[: min(one, two)])]))
    assert {**found, "config": None, "save": None} == {**expected, "config": None, "save": None}


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


def test_a_saved_file_holds_nothing_of_the_command_itself(tmp_path: pathlib.Path):
    path = tmp_path / "run.yaml"
    config_file.parse(submit._parser(), ["--project", "p-project", "--yes", "--wait", "--dry-run", "--save", str(path)])
    assert yaml.safe_load(path.read_text()) == {"project": "p-project"}


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
