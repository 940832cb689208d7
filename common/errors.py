"""Errors that the user can repair; `common.cli.run_cli` prints one line and exits with 2."""

from __future__ import annotations

import contextlib
import difflib
import re
import sys
from collections.abc import Iterable, Iterator


class UserError(ValueError):
    """Error in the input or the arguments; its message says what is wrong and how to repair it."""


def unknown(what: str, value: str, allowed: Iterable[str]) -> UserError:
    """Returns a `UserError` for a value that is none of the allowed ones.

    Args:
      what: Kind of the value, in words, such as `key`.
      value: The value, of which the message has the first 100 characters; it suggests the most
        similar allowed one, if one is similar.
      allowed: All allowed values; the message lists them.
    """
    names, value = sorted(allowed), value[:100]
    # A name that is a punctuation mark is quoted, or it would look like one of the message's own.
    shown = ", ".join(name if re.match(r"\w", name) else f"'{name}'" for name in names)
    hint = did_you_mean(value, names, cutoff=0.5)
    return UserError(f"unknown {what} {value!r}{hint} (known: {shown})")


def did_you_mean(value: str, allowed: Iterable[str], cutoff: float) -> str:
    """Returns `; did you mean 'X'?` for the most similar allowed value; empty if none is similar.

    Args:
      value: The value that is not allowed.
      allowed: All allowed values.
      cutoff: Least similarity, from 0 to 1, as in `difflib.get_close_matches`.
    """
    near = difflib.get_close_matches(value, list(allowed), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]!r}?" if near else ""


@contextlib.contextmanager
def reading(path: object, repair: str = "put the right one back, or delete it") -> Iterator[None]:
    """Context manager that turns errors in reading a file of the program's own into a `UserError`.

    A `UserError` passes unchanged.

    Args:
      path: Place of the file, for the message.
      repair: What the user can do, for the message.

    Raises:
      UserError: In place of any other exception in the block, as file systems and parsers have many
        kinds of their own.
      ConnectionError: Unchanged, as a failing store is not the user's mistake.
    """
    try:
        yield
    except (UserError, ConnectionError):
        raise
    except Exception as error:
        raise UserError(
            f"{path} cannot be used ({type(error).__name__}: {first_line(error)}); {repair}"
        ) from None


def first_line(error: object) -> str:
    """Returns the first line of an error's message, or the name of its type if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextlib.contextmanager
def readable(place: object) -> Iterator[None]:
    """Context manager that turns an `OSError` in reading the user's files into a `UserError`.

    Args:
      place: What is read; the message names it if the error has no file name.

    Raises:
      UserError: In place of an `OSError` in the block.
      ConnectionError: Unchanged, as a failing store or a closed output is not the user's mistake.
    """
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        raise UserError(
            f"{error.filename or place}: cannot be read ({error.strerror or error})"
        ) from None


@contextlib.contextmanager
def writable(place: object) -> Iterator[None]:
    """Context manager that turns an `OSError` in writing to `place` into a `UserError`.

    Also one from reading is turned, so wrap reads inside the block in `readable`.

    Raises:
      UserError: In place of an `OSError` in the block.
      ConnectionError: Unchanged, as a failing store or a closed output is not the user's mistake.
    """
    try:
        yield
    except ConnectionError:
        raise
    except OSError as error:
        raise UserError(f"cannot write {place}: {error.strerror or error}") from error


@contextlib.contextmanager
def about(name: object) -> Iterator[None]:
    """Context manager that puts `name: ` before the message of a `UserError` in the block.

    A message that begins so already stays as it is. The error stays the same, so that one of a
    subclass can still be told from others.
    """
    try:
        yield
    except UserError as error:
        if not str(error).startswith(f"{name}: "):
            error.args = (f"{name}: {error}",)
        raise


@contextlib.contextmanager
def store_errors() -> Iterator[None]:
    """Context manager that turns errors of TensorFlow's file system into Python's own.

    Other errors pass unchanged.

    Raises:
      FileNotFoundError: If the file does not exist.
      EOFError: If the file ends before the position that was to be read.
      ConnectionError: If a store still fails after TensorFlow has tried again, ten times over some
        minutes.
      OSError: For any other error of TensorFlow, such as a request that the store refuses.
    """
    try:
        yield
    except Exception as error:
        # If nothing has imported TensorFlow, the error cannot be one of its own.
        library = sys.modules.get("tensorflow")
        if library is None or not isinstance(error, library.errors.OpError):
            raise
        kinds: dict[str, type[Exception]] = {
            "NotFoundError": FileNotFoundError,
            "OutOfRangeError": EOFError,
        }
        kinds |= dict.fromkeys(("UnavailableError", "AbortedError"), ConnectionError)
        raise kinds.get(type(error).__name__, OSError)(" ".join(error.message.split())) from None
