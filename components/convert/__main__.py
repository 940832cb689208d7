"""`python -m components.convert`: converts a dataset to TFRecord shards and a manifest."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.parts import PartRange, finish, write_part
from components.convert.sources.downloads.catalog import OFFERED
from components.convert.sources.registry import READERS
from components.convert.sources.tfds.builder import TFDS
from trainer.base.errors import Parser, run_cli


def main(argv: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m components.convert",
        description="Convert a dataset to TFRecord shards and a manifest. The same source and arguments give the same "
        "bytes. Done again, it changes nothing; it never overwrites anything else.",
    )
    add = parser.add_argument
    add(
        "--dataset",
        metavar="NAME",
        default=Options.dataset,
        help=f"one of {', '.join(READERS)}, or {TFDS}NAME[/CONFIG][:VERSION] of TensorFlow Datasets; digits is built in",
    )
    add(
        "--source",
        metavar="PATH",
        nargs="+",
        default=argparse.SUPPRESS,
        help="files of any other dataset: a directory or an archive; of csv and tfrecord one or more files or directories; "
        f"without it {', '.join(OFFERED)} and {TFDS} datasets are downloaded",
    )
    add("--schema", metavar="FILE", default=argparse.SUPPRESS, help="what --dataset csv or tfrecord holds")
    add(
        "--image-size",
        metavar="HEIGHTxWIDTH",
        default=argparse.SUPPRESS,
        help="of image files: cut to these proportions and resize; pixels are stored, or with --encoding source a model "
        "gets this size",
    )
    add(
        "--encoding",
        choices=("raw", "source"),
        default=argparse.SUPPRESS,
        help="how image files are stored: pixels, or the files as they are; without it pixels if --image-size is given "
        "or all have one size of at most 64 KiB",
    )
    add(
        "--download-dir",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="where downloads are kept and looked for; without it a folder of the user's cache",
    )
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
    add("--split-seed", type=int, metavar="N", default=Options.split_seed, help="decides which examples these are")
    add(
        "--max-drift",
        type=float,
        metavar="D",
        default=Options.max_drift,
        help="fail if a feature or the label is further than this from the training split in another one: 0 is the same "
        "distribution, 1 has nothing in common, so that 1 allows any; dataset.html shows the distances",
    )
    add(
        "--processes",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS,
        help="that write shards; without it as many as there are cores, fewer for little data",
    )
    add(
        "--memory-gb",
        type=float,
        metavar="GB",
        default=argparse.SUPPRESS,
        help="for the data and all work on it, beside 0.1 that each process needs itself; what is larger is kept in "
        "unnamed files beside the output; without it half of the machine's",
    )
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
    flags = vars(parser.parse_args(argv))
    part, last = flags.pop("shard_range"), flags.pop("finish")
    if paths := flags.get("source"):
        flags["source"] = tuple(paths) if len(paths) > 1 else paths[0]
    options = Options(**flags)
    if part is not None:
        write_part(options, PartRange.parse(part, options))
    elif last:
        finish(options)
    else:
        convert(options)
    return 0


def _terminated(*_: object) -> NoReturn:
    sys.exit(143)  # on the way out, what was begun is removed


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    run_cli(main)
