"""`python -m components.convert`: converts a dataset to TFRecord shards and a manifest."""

import signal
import sys
from collections.abc import Sequence

from components.convert.convert import convert
from components.convert.options import Options
from trainer.base.errors import Parser, run_cli


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m components.convert",
        description="Convert a dataset to TFRecord shards and a manifest. The same source and arguments give the same "
        "bytes. Done again, it changes nothing; it never overwrites anything else.",
    )
    Options.add_flags(parser)
    convert(Options.of(parser.parse_args(argv)))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # on the way out, what was begun is removed
    run_cli(main)
