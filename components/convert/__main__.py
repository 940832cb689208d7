"""`python -m components.convert`: converts a dataset to TFRecord shards and a manifest."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.source import READERS
from trainer.errors import Parser, run_cli


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m components.convert",
        description="Convert a dataset to TFRecord shards and a manifest. The same source and arguments give the same "
        "bytes. Done again, it changes nothing; it never overwrites anything else.",
    )
    add = parser.add_argument
    add("--dataset", metavar="NAME", default=Options.dataset, help=f"one of {', '.join(READERS)}; digits is built in")
    add(
        "--source",
        metavar="PATH",
        nargs="+",
        default=argparse.SUPPRESS,
        help="files of any other dataset: a directory or an archive; of a table one or more CSV files or a directory",
    )
    add("--schema", metavar="FILE", default=argparse.SUPPRESS, help="what the columns of --dataset csv are")
    add(
        "--output",
        metavar="DIR",
        required=True,
        help="new or empty directory for the result",
        default=argparse.SUPPRESS,
    )
    add(
        "--shards",
        type=int,
        metavar="N",
        default=Options.shards,
        help="files of the training split; the others get as many in proportion",
    )
    add(
        "--test-fraction",
        type=float,
        metavar="F",
        default=Options.test_fraction,
        help="part of the training examples that becomes the test split; not used if the source has one",
    )
    add(
        "--validation-fraction",
        type=float,
        metavar="F",
        default=Options.validation_fraction,
        help="part of the remaining training examples that becomes the validation split",
    )
    add("--seed", type=int, metavar="N", default=Options.seed, help="decides which examples these are")
    flags = vars(parser.parse_args(argv))
    if paths := flags.get("source"):
        flags["source"] = tuple(paths) if len(paths) > 1 else paths[0]
    convert(Options(**flags))
    return 0


if __name__ == "__main__":
    run_cli(main)
