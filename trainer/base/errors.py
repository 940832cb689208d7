"""Errors that the user can repair, told in one line with exit code 2 by programs that end in `run_cli(main)`."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from trainer import code_version


class UserError(ValueError):
    """Something in the input or the arguments is wrong and the message says what and how to mend it."""


def unknown(what: str, value: str, allowed: Iterable[str]) -> UserError:
    """An error that names the value, its nearest match and the allowed set."""
    names = sorted(allowed)
    near = difflib.get_close_matches(value, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return UserError(f"unknown {what} {value!r}{hint} (known: {', '.join(names)})")


@contextlib.contextmanager
def reading(path: object, repair: str = "put the right one back, or delete it") -> Iterator[None]:
    """Around the use of what the program itself has written: what is wrong with it is the user's to mend.

    Raises:
      UserError: In place of whatever reading and parsing raise; file systems that are far away have errors of their own.
      ConnectionError: If a store fails, which is nobody's mistake.
    """
    try:
        yield
    except (UserError, ConnectionError):
        raise
    except Exception as error:
        raise UserError(f"{path} cannot be used ({type(error).__name__}: {first_line(error)}); {repair}") from None


def first_line(error: Exception) -> str:
    """What an error says, or its kind if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextlib.contextmanager
def readable(place: object) -> Iterator[None]:
    """Around the reading of what the user gives: an `OSError` becomes a `UserError` of the file that it names, or the place."""
    try:
        yield
    except BrokenPipeError:
        raise  # of standard output
    except OSError as error:
        raise UserError(f"{error.filename or place}: cannot be read ({error.strerror or error})") from None


@contextlib.contextmanager
def writable(place: object) -> Iterator[None]:
    """Around the writing to what the user names: an `OSError` becomes a `UserError`; what is read in there has to tell of its own."""
    try:
        yield
    except BrokenPipeError:
        raise  # of standard output
    except OSError as error:
        raise UserError(f"cannot write {place}: {error.strerror or error}") from error


@contextlib.contextmanager
def about(name: object) -> Iterator[None]:
    """Has errors begin with the name of what they are about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def escape_output() -> None:
    """Lets names be printed that the terminal's encoding cannot say, or that are no text at all, as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def heed_children() -> None:
    """Has the kernel keep the exit codes of this process's children, also where its parent ignored SIGCHLD.

    A process inherits that, and `subprocess` then takes every child for one that ended with 0.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help with the defaults that say something."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        silent = action.default is None or action.default is False or action.default in ("", [])
        return action.help if silent else super()._get_help_string(action)


class _Version(argparse.Action):
    """Says which code this is; looked for only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(code_version())
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A command line whose mistakes are user errors: one line, not the whole usage; help shows every default.

    Verbs of a command have no `version` of their own: given with one, it says which version of a model is meant, perhaps.
    """

    def __init__(self, *, version: bool = True, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Help, **kwargs)
        if self.add_help and version:
            nothing = {"nargs": 0, "default": argparse.SUPPRESS, "dest": argparse.SUPPRESS}
            self.add_argument("--version", action=_Version, help="say which code this is, and exit", **nothing)

    def error(self, message: str) -> NoReturn:
        """Raises instead of exiting."""
        raise UserError(f"{message} (see {self.prog} --help)")


def run_cli(main: Callable[[], int]) -> NoReturn:
    """Runs `main` and exits with its code; a `UserError` becomes one line on stderr and exit code 2, a failing store 1."""
    escape_output()
    heed_children()
    try:
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
