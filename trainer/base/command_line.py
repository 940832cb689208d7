"""The command line of a program, declared once as the fields of its options: the rest is derived from that.

@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    shards: int = flag(at_least(1), "files of the training split", default=8)

Options.add_flags(parser)                        # --shards N, with help and default
options = Options.of(parser.parse_args())
Options(shards=0)                                # UserError: --shards: '0' is not a whole number of at least 1 and ...
Options(shards=16).as_flags()                    # ["--shards", "16"]
"""

import argparse
import dataclasses
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

from trainer.base.errors import Parser, UserError, unknown


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

    Its `kind` is a type for argparse, `bool` of a flag without a value, or what to choose from; `group` its heading in the
    help, and `metavar` stands for a value there, in place of what the kind says. Of `several` values one or more are
    given, also in several places.
    """
    takes: dict[str, Any] = {"help": help, "required": True} if required else {"help": help, "default": default}
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
            value = getattr(self, field.name)
            if isinstance(value, bool) or value == field.default:
                continue
            for part in value if isinstance(value, list | tuple) else (value,):
                _check(field, part)

    @classmethod
    def add_flags(
        cls,
        parser: argparse._ActionsContainer,
        *,
        but: Collection[str] = (),
        descriptions: Mapping[str, str] = types.MappingProxyType({}),
        defaults: bool = True,
    ) -> None:
        """Adds a flag for every field to a parser or a group of one.

        Args:
          parser: Takes the flags.
          but: Names of fields that get no flag.
          descriptions: Texts for the help of groups, by title.
          defaults: False to leave a flag that is not on the command line out of the parsed arguments.
        """
        unset = {} if defaults else {"default": argparse.SUPPRESS}
        groups = {"": parser}
        for field in dataclasses.fields(cls):
            if field.name not in but:
                title = field.metadata["group"]
                if title not in groups:
                    groups[title] = parser.add_argument_group(title, descriptions.get(title))
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


def _check(field: dataclasses.Field, value: Any) -> None:
    takes = field.metadata["argparse"]
    try:
        takes.get("type", str)(str(value))
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise UserError(f"{_flag(field)}: {error}") from None
    if value not in takes.get("choices", (value,)):
        raise unknown(_flag(field), str(value), takes["choices"])


def _flag(field: dataclasses.Field) -> str:
    return "--" + field.name.replace("_", "-")


def _plain(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return tuple(value) if len(value) > 1 else value[0]
