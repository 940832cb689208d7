"""`python -m components.convert`: converts a dataset to TFRecord shards and a manifest."""

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.parts import finish, write_part
from trainer.base.errors import Parser, run_cli


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m components.convert",
        description="Convert a dataset to TFRecord shards and a manifest. The same source and arguments give the same "
        "bytes. Done again, it changes nothing; it never overwrites anything else.",
    )
    Options.add_flags(parser)
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument(
        "--shard-range",
        metavar="START:STOP",
        help="write only these of the training shards, counted from 0, and shards of the other splits in proportion; "
        "commands with the same arguments and other ranges may do so at the same time, on other machines too",
    )
    parts.add_argument(
        "--finish", action="store_true", help="check the shards that --shard-range wrote and write the manifest"
    )
    args = parser.parse_args(argv)
    options = Options.of(args)
    if args.shard_range is not None:
        write_part(options, args.shard_range)
    elif args.finish:
        finish(options)
    else:
        convert(options)
    return 0


def _terminated(*_: object) -> NoReturn:
    sys.exit(143)  # on the way out, what was begun is removed


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    run_cli(main)
