"""Errors that the user can repair: `common.cli.run_cli` prints them in one line and exits with 2."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterable, Iterator


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
      UserError: In place of whatever reading and parsing raise; file systems that are far away have
        errors of their own.
      ConnectionError: If a store fails, which is nobody's mistake.
    """
    try:
        yield
    except (UserError, ConnectionError):
        raise
    except Exception as error:
        raise UserError(
            f"{path} cannot be used ({type(error).__name__}: {first_line(error)}); {repair}"
        ) from None


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, or the name of its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextlib.contextmanager
def readable(place: object) -> Iterator[None]:
    """Around the reading of what the user gives: an `OSError` becomes a `UserError` of the file that it names, or the place."""
    try:
        yield
    except BrokenPipeError:
        raise  # of standard output
    except OSError as error:
        raise UserError(
            f"{error.filename or place}: cannot be read ({error.strerror or error})"
        ) from None


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


@contextlib.contextmanager
def store_errors() -> Iterator[None]:
    """Turns the errors of TensorFlow's file system, which reads stores too, into the usual ones.

    Raises:
      FileNotFoundError: If it is not there.
      EOFError: If it ends before the place that was asked for.
      ConnectionError: If the store still fails after the library has tried again, ten times over
        some minutes.
      OSError: If the store refuses.
    """
    try:
        yield
    except Exception as error:
        library = sys.modules.get("tensorflow")  # where it was not needed yet, the error is not its
        if library is None or not isinstance(error, library.errors.OpError):
            raise
        kinds: dict[str, type[Exception]] = {
            "NotFoundError": FileNotFoundError,
            "OutOfRangeError": EOFError,
        }
        kinds |= dict.fromkeys(("UnavailableError", "AbortedError"), ConnectionError)
        raise kinds.get(type(error).__name__, OSError)(" ".join(error.message.split())) from None
