"""Keys of a run, given in a file `run.yaml`, by `--set KEY=VALUE`, or by a flag of their own.

keys = Keys(options={ConvertOptions: ("output",), Own: ()}, flags=("dataset", "source"))
keys.add_flags(parser)
config = keys.read(parser.parse_args())
config.shards, config.model_fields_set

A flag wins over `--set`, that over the file, and the file over the default. A key is a field of the
`Flags` that use it, such as the options of a step; it is declared only there.
"""

import argparse
import dataclasses
import functools
import pathlib
import warnings
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import pydantic

from common import documents
from common.cli import Flags, check_value
from common.errors import about, readable
from common.validation import Model


class Config(Model, coerce_numbers_to_str=True):
    """Base of the pydantic models of keys."""

    if TYPE_CHECKING:  # Which keys there are is known at run time only.

        def __getattr__(self, name: str) -> Any: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keys:
    """Keys of a command.

    Attributes:
      options: Classes whose fields are the keys, each with the names of its fields that are no
        keys.
      flags: Names of the keys that have a flag of their own.
    """

    options: Mapping[type[Flags], Collection[str]]
    flags: Collection[str]

    @functools.cached_property
    def model(self) -> type[Config]:
        """The pydantic model of `run.yaml`, with a field for each key."""
        keys: dict[str, Any] = {}
        for options, hidden in self.options.items():
            for field in dataclasses.fields(options):
                if field.name not in hidden:
                    kind = Annotated[  # mypy takes it for an annotation.
                        field.type,  # type: ignore[name-defined]
                        pydantic.AfterValidator(functools.partial(check_value, field)),
                    ]
                    text = field.metadata["argparse"]["help"]
                    keys[field.name] = (
                        kind,
                        pydantic.Field(default=field.default, description=text),
                    )
        with warnings.catch_warnings():
            # The key `schema` has the name of a deprecated method of pydantic's models.
            warnings.simplefilter("ignore", UserWarning)
            return pydantic.create_model("RunConfig", __base__=Config, **keys)

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        """Adds the flags of keys, `--config`, `--set` and `--help-config` to a parser.

        Only the keys in `flags` get flags of their own; those that are not on the command line are
        left out of the parsed arguments. If `trainer_flags` is a key, what follows `--` is its
        value.
        """
        for options, hidden in self.options.items():
            others = [
                field.name for field in dataclasses.fields(options) if field.name not in self.flags
            ]
            options.add_flags(parser, but={*others, *hidden}, defaults=False)
        if "trainer_flags" in self.model.model_fields:
            parser.add_argument(
                "trainer_flags",
                nargs="*",
                metavar="-- trainer flags",
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )
        group = parser.add_argument_group("all other keys of a run")
        group.add_argument(
            "--config",
            metavar="FILE",
            help="run.yaml with any of them, or of the flags; the flags win",
        )
        group.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="one of them, VALUE in YAML",
        )
        group.add_argument("--help-config", action="store_true", help="list them, and exit")

    def read(self, args: argparse.Namespace) -> Config:
        """Returns the values of all keys; those that are given nowhere have their defaults.

        A flag wins over `--set`, that over the file of `--config`, and the file over the default.
        With `--help-config` it prints the keys and exits.

        Args:
          args: Arguments parsed with the flags of `add_flags`.

        Raises:
          UserError: If the file cannot be read, or if a key or a value is not allowed.
        """
        if args.help_config:
            for name, field in self.model.model_fields.items():
                kind = getattr(field.annotation, "__name__", field.annotation)
                print(f"{name}: {kind} = {field.default!r}\n    {field.description}")
            raise SystemExit
        content: dict[str, Any] = {}
        if args.config:
            with readable(args.config), about(args.config):
                content = documents.parse_yaml(pathlib.Path(args.config).read_bytes())
                self.model.read(content)
        for text in args.set:
            key, _, value = text.partition("=")
            with about(f"--set {text}"):
                content[key] = documents.parse_yaml(value.encode())
                self.model.read({key: content[key]})
        flags = {
            name: value
            for name, value in vars(args).items()
            if name in self.model.model_fields and value != []
        }
        return self.model.read(content | flags)
