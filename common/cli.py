"""Command lines: flags declared once as fields of a dataclass, the parser, and how a program ends.

@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    shards: int = flag(at_least(1), "files of the training split", default=8)

Options.add_flags(parser)                        # --shards N, with help and default
options = Options.of(parser.parse_args())
Options(shards=0)                                # UserError: --shards: '0' is not a whole number of
at least 1 and ... Options(shards=16).as_flags()                    # ["--shards=16"]
run_cli(main)                                    # exits with what `main` returns; a UserError is
one line and exit code 2
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from common.errors import UserError, about, unknown
from common.version import code_version

if TYPE_CHECKING:
    from typing import Self  # which old Pythons, of which `pipelines/doctor.py` warns, do not have


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
    """A field that is a flag by the same name, and by the `aliases`, which have their dashes; `marks` are its metadata.

    Its `kind` is a type for argparse, `bool` of a flag without a value, or what to choose from;
    `group` its heading in the help, and `metavar` stands for a value there, in place of what the
    kind says. Of `several` values one or more are given, also in several places.
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


class Flags:
    """Base of frozen dataclasses all of whose fields are made by `flag`."""

    def __post_init__(self) -> None:
        """Refuses what the command line would refuse."""
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
        """Adds a flag for every field to a parser or a group of one.

        Args:
          parser: Takes the flags.
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
    def of(cls, args: argparse.Namespace, **fixed: Any) -> Self:
        """Options from parsed flags; `fixed` go before them, and a list of one value is that value."""
        given = {**vars(args), **fixed}
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(**{name: _plain(given[name]) for name in names if name in given})

    @classmethod
    def parse(cls, argv: Sequence[str], prog: str, **fixed: Any) -> Self:
        """Options from the flags that a pipeline hands to its step; `fixed` are given by the step, and no flags."""
        parser = Parser(prog=prog)
        cls.add_flags(parser, but=fixed)
        return cls.of(parser.parse_args(argv), **fixed)

    def as_flags(self, *, but: Collection[str] = ()) -> list[str]:
        """The command line that gives these options, without what is so by default: equal options, equal lines."""
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


def as_list(values: str | tuple[str, ...] | None) -> list[str]:
    """Returns the values of a flag that takes several; one alone is no tuple."""
    return [values] if isinstance(values, str) else list(values or ())


def check_value(field: dataclasses.Field, value: Any) -> Any:
    """Returns the value of a field made by `flag`; refuses what the command line would refuse."""
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


def _flag(field: dataclasses.Field) -> str:
    return "--" + field.name.replace("_", "-")


def _plain(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return tuple(value) if len(value) > 1 else value[0]


def set_up_output() -> None:
    """Has each line be shown at once, and names that the terminal's encoding cannot say, or that are no text, as escapes.

    Nothing becomes of what is written to a standard stream that this process was started without.
    """
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
            setattr(sys, name, os.fdopen(number, "w", closefd=False))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)


def keep_exit_codes_of_children() -> None:
    """Has the kernel keep the exit codes of this process's children, also where its parent ignored SIGCHLD.

    A process inherits that, and `subprocess` then takes every child for one that ended with 0.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help with the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default is None or action.default is False or action.default in ("", [])
        return action.help if silent else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """A command line whose mistakes are user errors: one line, not the whole usage; help shows every default."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Help, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Raises instead of exiting."""
        raise UserError(f"{message} (see {self.prog} --help)")


def run_cli(main: Callable[[], int]) -> NoReturn:
    """Runs `main` and exits with its code; a `UserError` becomes one line on stderr and exit code 2, a failing store 1.

    Every program says with `--version` which code it is.
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
    except BrokenPipeError:  # the reader, `head` perhaps, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except ConnectionError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def confirm(what: str) -> bool:
    """Asks the person at the terminal before something that cannot be undone, or that costs.

    Args:
      what: An action, such as `delete all of this`.

    Returns:
      Whether the answer is yes.

    Raises:
      UserError: If there is no terminal; it names the flag `--yes`.
    """
    if not sys.stdin.isatty():
        raise UserError(f"nobody can be asked here whether to {what}; add --yes")
    return input(f"{what}? [y/N] ").strip().lower() in ("y", "yes")
