"""Command lines: flags declared once as fields of a dataclass, the parser, and how a program ends.

@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    shards: int = flag(at_least(1), "files of the training split", default=8)

Options.add_flags(parser)               # --shards N, with help and default
options = Options.of(parser.parse_args())
Options(shards=0)                       # UserError: --shards: '0' is not a whole number of ...
Options(shards=16).as_flags()           # ["--shards=16"]
run_cli(main)                           # exits with what `main` returns; with 2 on a UserError
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from common.errors import UserError, about, did_you_mean, unknown
from common.version import code_version

if TYPE_CHECKING:
    # Imported for type checkers only: `pipelines/doctor.py` has to start on old Pythons, to warn of
    # them, and these lack `Self`.
    from typing import Self


def flag(
    kind: Callable[[str], Any] | tuple[str, ...],
    help: str,
    *aliases: str,
    default: Any = None,
    required: bool = False,
    group: str = "",
    metavar: str | None = None,
    several: bool = False,
    **marks: Any,
) -> Any:
    """Declares a field of a `Flags` dataclass, with the command line flag of the same name.

    Args:
      kind: Converts a text to the value, as argparse's `type`. `bool` makes a flag without a value,
        whose default is always False, and a tuple of texts makes a choice.
      help: Description for `--help`.
      *aliases: Further names of the flag, with their dashes.
      default: Value if the flag is not given.
      required: Makes the flag mandatory; `default` is ignored.
      group: Heading under which the help lists the flag.
      metavar: Placeholder for the value in the help, in place of the one of `kind`.
      several: Takes one or more values, and may be repeated; the values add up.
      **marks: Further entries of the field's metadata.

    Returns:
      A dataclass field.
    """
    takes: dict[str, Any] = (
        {"help": help, "required": True} if required else {"help": help, "default": default}
    )
    if kind is bool:
        takes |= {"action": "store_true", "default": False}
    elif isinstance(kind, tuple):
        takes |= {"choices": kind}
    else:
        takes |= {"type": kind, "metavar": metavar or getattr(kind, "metavar", None)}
    if several:
        takes |= {"nargs": "+", "action": "extend"}
    metadata = {**marks, "group": group, "aliases": aliases, "argparse": takes}
    return dataclasses.field(default=takes.get("default", dataclasses.MISSING), metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Flags:
    """Base class of frozen dataclasses all of whose fields are made by `flag`.

    Creating an instance raises a `UserError` for a value that the command line would refuse.
    """

    def __post_init__(self) -> None:
        """Checks every field; a `UserError` begins with the name of the flag."""
        for field in dataclasses.fields(self):
            with about(_flag(field)):
                check_value(field, getattr(self, field.name))

    @classmethod
    def add_flags(
        cls,
        parser: argparse._ActionsContainer,
        *,
        but: Collection[str] = (),
        defaults: bool = True,
    ) -> None:
        """Adds a flag for every field to a parser, or to a group of one.

        Args:
          parser: Parser or group that gets the flags.
          but: Names of fields that get no flag.
          defaults: False to leave a flag that is not on the command line out of the parsed
            arguments.
        """
        unset = {} if defaults else {"default": argparse.SUPPRESS}
        groups = {"": parser}
        for field in dataclasses.fields(cls):
            if field.name not in but:
                title = field.metadata["group"]
                if title not in groups:
                    groups[title] = parser.add_argument_group(title)
                takes = {**field.metadata["argparse"], **unset}
                groups[title].add_argument(_flag(field), *field.metadata["aliases"], **takes)

    @classmethod
    def of(cls, args: object, **fixed: Any) -> Self:
        """Returns options from parsed flags.

        A field that is missing in both arguments keeps its default. A list of one value becomes
        that value, and a longer list becomes a tuple.

        Args:
          args: Parsed flags; those that are no field are ignored.
          **fixed: Values of fields, which win over `args`.

        Raises:
          UserError: If a value is not allowed.
          TypeError: If a mandatory field is missing in both arguments.
        """
        given = {**vars(args), **fixed}
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: _plain(given[name]) for name in names if name in given})

    @classmethod
    def parse(
        cls, argv: Sequence[str] | None, prog: str, description: str = "", **fixed: Any
    ) -> Self:
        """Parses a command line all of whose flags are fields, as of a pipeline's step.

        The flag `--help` prints the help and exits.

        Args:
          argv: Arguments, without the program's name; None for those of this process.
          prog: Name of the program, for messages.
          description: What it does, for the help.
          **fixed: Values of fields that the step sets itself; these get no flags.

        Raises:
          UserError: If a flag is unknown, is missing, or has a value that is not allowed.
        """
        parser = Parser(prog=prog, description=description)
        cls.add_flags(parser, but=fixed)
        return cls.of(parser.parse_args(argv), **fixed)

    def as_flags(self, *, but: Collection[str] = ()) -> list[str]:
        """Returns the command line that gives these options, without those that have their default.

        Equal options give equal lists.

        Args:
          but: Names of further fields to leave out.
        """
        line = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in but or value == field.default:
                continue
            if isinstance(value, bool):
                line.append(_flag(field))
            elif isinstance(value, list | tuple):
                line += [_flag(field), *map(str, value)]
            else:
                line.append(f"{_flag(field)}={value}")
        return line


def as_list(values: str | Sequence[str] | None) -> list[str]:
    """Returns the values of a flag that takes several: no items for None, one item for a text."""
    return [values] if isinstance(values, str) else list(values or ())


def split_words(flag: str, text: str) -> list[str]:
    """Returns the words of a command line, as a shell splits it.

    Args:
      flag: Flag or key that gives the command line, such as `--command`, for the message.
      text: The command line.

    Raises:
      UserError: If a quotation is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{flag} {text!r}: {error}; close the quotation") from None


def check_value(field: dataclasses.Field[Any], value: Any) -> Any:
    """Returns the value of a field made by `flag` unchanged, after checking it.

    Raises:
      UserError: If the command line would refuse the value. Booleans and the field's default always
        pass.
    """
    if isinstance(value, bool) or value == field.default:
        return value
    takes = field.metadata["argparse"]
    for part in value if isinstance(value, list | tuple) else (value,):
        try:
            takes.get("type", str)(str(part))
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise UserError(str(error)) from None
        if part not in takes.get("choices", (part,)):
            raise unknown("value", str(part), takes["choices"])
    return value


def _flag(field: dataclasses.Field[Any]) -> str:
    return "--" + field.name.replace("_", "-")


def _plain(value: Any) -> Any:
    # A list of several values becomes a tuple, as options are frozen; a list of one, its value.
    if not isinstance(value, list | tuple):
        return value
    return tuple(value) if len(value) > 1 else value[0]


def set_up_output() -> None:
    """Makes stdout and stderr write each line at once, and escape what they cannot encode.

    Escapes stand for characters that the terminal's encoding lacks, and for bytes of file names
    that are no text. A standard stream that this process was started without discards what is
    written.
    """
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)


def keep_exit_codes_of_children() -> None:
    """Sets SIGCHLD to its default, so that the exit codes of child processes are kept.

    A process whose parent ignored SIGCHLD ignores it too. The kernel then drops the exit codes, and
    `subprocess` reports 0 for every child.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


# Messages of argparse about a flag or a choice that it does not know.
_TYPO = re.compile(
    r"unrecognized arguments: (?P<flag>--[\w-]+)"
    r"|invalid choice: '(?P<choice>.*?)' \(choose from (?P<choices>.*)\)"
)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help formatter that shows defaults, except None, False and empty ones."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default is None or action.default is False or action.default in ("", [])
        return action.help if silent else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """Argument parser that raises a one-line `UserError` for a wrong command line.

    Flags cannot be abbreviated, and the help shows defaults.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Help, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raises a `UserError` in place of printing the usage and exiting.

        For a mistyped flag or choice it suggests the most similar one.
        """
        if typo := _TYPO.search(message):
            flags = re.findall(r"--[\w-]+", self.format_usage())
            choices = re.findall(r"[^\s',]+", typo["choices"] or "")
            message += did_you_mean(typo["flag"] or typo["choice"], choices or flags, cutoff=0.7)
        raise UserError(f"{message} (see {self.prog} --help)")


def run_cli(main: Callable[[], int]) -> NoReturn:
    """Runs `main` and exits the process with the code that `main` returns.

    The command line `--version` prints the version of the code in place of calling `main`. Other
    exit codes are: 1 after a `ConnectionError` (a store or service failed) and 2 after a
    `UserError`, both with one line on stderr; 130 after Ctrl-C; 141 if the reader of stdout has
    closed the pipe. Other exceptions pass unchanged.
    """
    set_up_output()
    keep_exit_codes_of_children()
    try:
        if sys.argv[1:] == ["--version"]:
            print(code_version())
            sys.exit()
        sys.exit(main())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # The reader of the output, such as `head`, has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except ConnectionError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def confirm(what: str) -> bool:
    """Asks the person at the terminal before something that cannot be undone, or that costs money.

    Args:
      what: Action to confirm, such as `delete all of this`.

    Returns:
      True if the answer is `y` or `yes`, in any case; False for another one, and for Ctrl-D.

    Raises:
      UserError: If stdin is no terminal; the message names the flag `--yes`.
    """
    if not sys.stdin.isatty():
        raise UserError(f"nobody can be asked here whether to {what}; add --yes")
    try:
        return input(f"{what}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # Ctrl-D
        print()
        return False
