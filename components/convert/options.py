"""Options of a conversion: flags of the command, and keys of the pipeline's step."""

import dataclasses
import re

from common.cli import Flags, flag
from common.flags import Kind, at_least, local, place, share
from components.convert.sources.registry import DOWNLOADED, SOURCES, TFDS

_MOST_SHARDS = 99_999  # The names of shards have five digits.
_MOST_PROCESSES = 1_024
_SIZE = re.compile(r"[1-9][0-9]{0,4}x[1-9][0-9]{0,4}")
_size = Kind(
    str, lambda text: bool(_SIZE.fullmatch(text)), "HEIGHTxWIDTH in pixels, such as 224x224"
)
_seed = Kind(
    int, lambda value: 0 <= value < 2**64, "a whole number of at least 0 and less than 2**64"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Flags):
    """Options of a conversion. None leaves a choice to the program.

    Raises:
      UserError: If the command line would refuse a value.
    """

    dataset: str = flag(
        str,
        f"one of {', '.join(SOURCES)}, or {TFDS}NAME[/CONFIG][:VERSION] of TensorFlow Datasets; "
        "digits is built in",
        default="digits",
        metavar="NAME",
    )
    source: str | tuple[str, ...] | None = flag(
        place,
        "files of any other dataset, here or gs://BUCKET/NAME: a directory or an archive; "
        "of tables one or more files or directories; without it "
        f"{', '.join(DOWNLOADED)} and {TFDS} datasets are downloaded by TensorFlow Datasets",
        metavar="PATH",
        several=True,
    )
    schema: str | None = flag(
        local,
        "what --dataset csv, jsonl or parquet holds",
        metavar="FILE",
    )
    image_size: str | None = flag(
        _size,
        "of image files: cut to these proportions and resize; pixels are stored, or with "
        "--encoding source a model gets this size",
        metavar="HEIGHTxWIDTH",
    )
    encoding: str | None = flag(
        ("raw", "source"),
        "how image files are stored: pixels, or the files as they are; without it pixels if "
        "--image-size is given or all have one size of at most 64 KiB",
    )
    output: str = flag(place, "new or empty directory for the result", required=True, metavar="DIR")
    shards: int | None = flag(
        at_least(1, _MOST_SHARDS),
        "files of the training split, about; the others get as many in proportion. "
        "Without it there are 16, fewer of small data, more if each would take "
        "more than 128 MB of the source",
    )
    test_fraction: float = flag(
        share,
        "part of the training examples that becomes the test split; not used if the source has one",
        default=0.2,
        metavar="F",
    )
    validation_fraction: float = flag(
        share,
        "part of the remaining training examples that becomes the validation split",
        default=0.1,
        metavar="F",
    )
    split_seed: int = flag(_seed, "decides which examples these are, and nothing else", default=0)
    skip_bad: int | None = flag(
        at_least(1),
        "of tables: leave out rows that are wrong, so many at most; without it the first one is an "
        "error",
    )
    processes: int | None = flag(
        at_least(1, _MOST_PROCESSES),
        "that write shards; without it as many as there are cores, twice as many into a bucket, "
        "fewer for little data",
    )

    @property
    def directory(self) -> str:
        """Output directory, without a slash at its end."""
        return self.output.rstrip("/") or "/"

    @property
    def source_options(self) -> dict[str, object]:
        """Options of the source by name, None for each that is not given.

        The size of images is (height, width).
        """
        size = tuple(map(int, self.image_size.split("x"))) if self.image_size else None
        plain = ("schema", "encoding", "skip_bad")
        return {"image_size": size, **{name: getattr(self, name) for name in plain}}

    @property
    def arguments(self) -> dict[str, str | int | float]:
        """Options that decide the content of the dataset, by name, without those that are None.

        No path is among them. Fractions are floats. The source adds the content of its schema.
        """
        names = ("dataset", "image_size", "encoding", "shards", "split_seed", "skip_bad")
        decisive = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        fractions = ("validation_fraction", "test_fraction")
        return {**decisive, **{name: float(getattr(self, name)) for name in fractions}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposal(Flags):
    """Options for proposing a schema instead of converting a dataset."""

    infer_schema: str | None = flag(
        local,
        "write a schema for --source of csv, jsonl or parquet to be edited, with what each column "
        "is and what a model might make of it, and convert nothing",
        metavar="FILE",
    )
    label: str | None = flag(
        str,
        "with --infer-schema: the column to be predicted; without it that is left to be filled in",
        metavar="COLUMN",
    )
