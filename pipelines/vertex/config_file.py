"""A file that holds the flags of a command (`run.yaml`): read before the command line, which wins.

project: my-project
cluster: clusters/vertex-sync.yaml
env: [LEVEL=2]
deterministic: false
trainer_flags: [--checkpoint-secs, "60"]
"""

import argparse
import copy
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from common import strict_yaml
from common.cli import Parser
from common.errors import UserError, about, readable, unknown

# What says how this command is to be run, and nothing of the run.
_OF_THE_COMMAND = {"help", "config", "dry_run", "yes", "wait", "list", "cancel", "resume"}
_FLAGS = "trainer_flags"  # what follows --


def parse(parser: Parser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments: of the command line, else of the file that `--config` names, else by default."""
    given = _given(parser, argv)
    if config := given.get("config"):
        given = {**_read(parser, pathlib.Path(config)), **given}
    args = parser.parse_args([])
    vars(args).update(given)
    return args


def _given(parser: Parser, argv: Sequence[str] | None) -> dict[str, Any]:
    """The arguments that stand on a command line, without any default."""
    silent = copy.deepcopy(parser)
    for action in silent._actions:
        action.default = argparse.SUPPRESS
    found = vars(silent.parse_args(argv))
    return {name: value for name, value in found.items() if value != []}


def _read(parser: Parser, path: pathlib.Path) -> dict[str, Any]:
    with readable(path):
        content = strict_yaml.parse(path.read_bytes())
    with about(path):
        if not isinstance(content, dict):
            raise UserError("a file of flags has one a line, such as 'project: my-project'")
        actions = {action.dest: action for action in parser._actions if action.dest not in _OF_THE_COMMAND}
        words = []
        for name, value in content.items():
            if name not in actions:
                raise unknown("key", str(name), actions)
            if name != _FLAGS:
                words += _words(actions[name], value)
        return _given(parser, [*words, "--", *map(str, content.get(_FLAGS) or ())])


def _words(action: argparse.Action, value: Any) -> list[str]:
    """The value of a key as it stands on the command line."""
    name = action.option_strings[0]
    if isinstance(value, bool):
        if isinstance(action, argparse.BooleanOptionalAction):
            return [name if value else name.replace("--", "--no-", 1)]
        if action.nargs != 0:
            raise UserError(f"{action.dest}: {str(value).lower()}, but it takes a value")
        return [name] if value is action.const else []
    if isinstance(value, Mapping) or value is None or (isinstance(value, list) and action.nargs != "+"):
        raise UserError(f"{action.dest}: {value!r} is no value of {name}")
    return [name, *map(str, value)] if isinstance(value, list) else [f"{name}={value}"]
