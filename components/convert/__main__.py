"""`python -m components.convert`: converts a dataset to TFRecord shards and a manifest."""

import contextlib
import ctypes
import gc
import signal
import sys
from collections.abc import Sequence

from common.cli import Parser, run_cli
from common.errors import UserError
from components.convert.convert import convert
from components.convert.options import Options, Proposal

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # Parameters of `mallopt`, from malloc.h.


def _keep_memory() -> None:
    """Makes this process, and those that it forks, keep and reuse freed memory.

    A conversion allocates and frees blocks of megabytes all the time. If they went back to the
    system, clearing their pages again would take a tenth of the time. Python's garbage collector
    also runs less often: its runs take a twentieth of a small conversion, and nearly all objects
    that it visits belong to modules.
    """
    gc.set_threshold(100_000, 20, 20)
    with contextlib.suppress(AttributeError):  # Only GNU's C library has `mallopt`.
        for threshold, num_bytes in ((_TRIM_THRESHOLD, 256 << 20), (_MMAP_THRESHOLD, 32 << 20)):
            ctypes.CDLL(None).mallopt(threshold, num_bytes)


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m components.convert",
        description="Convert a dataset to TFRecord shards and a manifest. The same source and "
        "arguments give the same bytes. Done again, it changes nothing; it never overwrites "
        "anything else.",
    )
    Options.add_flags(parser)
    parser.add_argument(
        "--engine",
        choices=("processes", "beam"),
        default="processes",
        help="what writes the shards: processes of this machine, or Apache Beam, whose flags "
        "follow behind --, as in --engine beam -- --runner DataflowRunner",
    )
    Proposal.add_flags(parser.add_argument_group("a schema to begin with"))
    argv = sys.argv[1:] if argv is None else argv
    end = argv.index("--") if "--" in argv else len(argv)
    argv, beam = argv[:end], argv[end + 1 :]
    proposed = any(arg.partition("=")[0] == "--infer-schema" for arg in argv)
    # The parser requires `--output`, which has no meaning for a proposal.
    args = parser.parse_args(["--output=-", *argv] if proposed else argv)
    options, proposal = Options.of(args), Proposal.of(args)
    if proposed:
        from components.convert.inference import write  # What it needs is slow to import.

        write(options, proposal)
    elif proposal.label:
        raise UserError(
            "--label means nothing without --infer-schema; a schema says what is predicted"
        )
    elif beam and args.engine != "beam":
        raise UserError(f"{beam[0]} is for Apache Beam; say --engine beam before the --")
    else:
        convert(options, beam if args.engine == "beam" else None)
    return 0


if __name__ == "__main__":
    _keep_memory()
    # Unlike the default action, an exception lets the conversion remove its temporary files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run_cli(main)
