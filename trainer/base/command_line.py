"""The command line of a program, declared once as the fields of its options: the rest is derived from that.

@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    shards: int = flag(8, type=at_least(1), metavar="N", help="files of the training split")

Options.add_flags(parser)                        # --shards N, with help and default
options = Options.of(parser.parse_args())
Options(shards=0)                                # UserError: --shards: '0' is not a whole number of at least 1
Options(shards=16).as_flags()                    # ["--shards", "16"]
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection, Sequence
from typing import Any, Self

from trainer.base.errors import Parser, UserError, unknown


def flag(default: Any = dataclasses.MISSING, *, help: str, **argument: Any) -> Any:
    """A field that is a flag, which has to be given if there is no default.

    Args:
      default: Of the field.
      help: What it means, for people.
      **argument: What else `argparse` is to know; a value of any origin is held against its `type` and `choices`.
    """
    return dataclasses.field(default=default, metadata={"help": help, **argument})


class Flags:
    """Base of frozen dataclasses all of whose fields are made by `flag`."""

    def __post_init__(self) -> None:
        """Refuses what the command line would refuse.

        Raises:
          UserError: If a value is none that its flag can have.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or value == field.default:
                continue
            for part in value if isinstance(value, list | tuple) else (value,):
                _check(field, part)

    @classmethod
    def add_flags(cls, parser: argparse._ActionsContainer, *, but: Collection[str] = ()) -> None:
        """Adds a flag for every field to a parser or a group of one; `but` are names of fields that get none."""
        for field in dataclasses.fields(cls):
            if field.name not in but:
                needed = field.default is dataclasses.MISSING
                default = {"required": True} if needed else {"default": field.default}
                parser.add_argument(_flag(field), **default, **field.metadata)

    @classmethod
    def of(cls, args: argparse.Namespace, **fixed: Any) -> Self:
        """Options from parsed flags; `fixed` go before them, and a list of one value is that value.

        Raises:
          UserError: If they do not fit.
        """
        given = {**vars(args), **fixed}
        return cls(
            **{field.name: _plain(given[field.name]) for field in dataclasses.fields(cls) if field.name in given}
        )

    @classmethod
    def parse(cls, argv: Sequence[str], prog: str, **fixed: Any) -> Self:
        """Options from the flags that a pipeline hands to its step; `fixed` are given by the step, and no flags.

        Raises:
          UserError: If they are wrong.
        """
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
                line.append(_flag(field) if value else _flag(field).replace("--", "--no-", 1))
            elif isinstance(value, list | tuple):
                line += [_flag(field), *map(str, value)]
            else:
                line.append(f"{_flag(field)}={value}")
        return line


def _check(field: dataclasses.Field, value: Any) -> None:
    try:
        field.metadata.get("type", str)(str(value))
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise UserError(f"{_flag(field)}: {error}") from None
    if value not in field.metadata.get("choices", (value,)):
        raise unknown(_flag(field), str(value), field.metadata["choices"])


def _flag(field: dataclasses.Field) -> str:
    return "--" + field.name.replace("_", "-")


def _plain(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return tuple(value) if len(value) > 1 else value[0]
