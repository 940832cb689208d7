"""What to convert, and how: the flags of the command as a value."""

from __future__ import annotations

import dataclasses
import re

from trainer.base.errors import UserError

_SIZE = re.compile(r"[1-9][0-9]{0,4}x[1-9][0-9]{0,4}")
_SIZE_DUE = "HEIGHTxWIDTH in pixels, such as 224x224"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of a conversion.

    Attributes:
      dataset: A name of `registry.READERS`, or `tfds:` and one of TensorFlow Datasets.
      source: The source's directory or file, or several files; None for a dataset that is embedded or downloaded.
      schema: Schema file of the dataset `csv` or `tfrecord`.
      image_size: `HEIGHTxWIDTH` that a model gets of image files; None for their own.
      encoding: How image files are stored, `raw` (pixels) or `source` (as they are); None to decide by their sizes.
      download_dir: Where downloads are kept; None for a folder of the user's cache.
      output: Directory of the result.
      shards: Files of the training split; the other splits get as many in proportion, at least one.
      test_fraction: Part of the training examples that becomes the test split, if the source has none.
      validation_fraction: Part of the rest that becomes the validation split, if the source has none.
      split_seed: Decides which examples these are, and nothing else.
      max_drift: How far a feature or the label may be from the training split in another one, from 0 to 1 (see `drift`).
      processes: That write shards; None for as many as the machine has cores for and the data is worth.
      memory_gb: Gigabytes for the data and all working space, beside what the programs need themselves (about 0.1 for
        each process); None for half of what the machine has.

    Raises:
      UserError: If a number is out of its range, or a path is empty or a URL.
    """

    dataset: str = "digits"
    source: str | tuple[str, ...] | None = None
    schema: str | None = None
    image_size: str | None = None
    encoding: str | None = None
    download_dir: str | None = None
    output: str
    shards: int = 8
    validation_fraction: float = 0.1
    test_fraction: float = 0.2
    split_seed: int = 0
    max_drift: float = 1.0
    processes: int | None = None
    memory_gb: float | None = None

    def __post_init__(self):
        sources = (self.source,) if isinstance(self.source, str) else self.source or ()
        flags = [("--source", path) for path in sources]
        flags += [("--schema", self.schema), ("--download-dir", self.download_dir), ("--output", self.output)]
        for flag, path in flags:
            if path == "":
                raise UserError(f"{flag} '': must be a path; . is the current directory")
            if path and "://" in path:
                raise UserError(f"{flag} {path}: must be a path here (a mounted bucket is one)")
        for name, fits, due in (
            ("shards", self.shards >= 1, "at least 1"),
            ("validation_fraction", 0 <= self.validation_fraction < 1, "at least 0 and less than 1"),
            ("test_fraction", 0 <= self.test_fraction < 1, "at least 0 and less than 1"),
            ("split_seed", 0 <= self.split_seed < 2**64, "at least 0 and less than 2**64"),
            ("max_drift", 0 <= self.max_drift <= 1, "from 0 to 1; 1 allows any"),
            ("processes", self.processes is None or self.processes >= 1, "at least 1"),
            ("memory_gb", self.memory_gb is None or self.memory_gb >= 0.1, "at least 0.1"),
            ("image_size", self.image_size is None or _SIZE.fullmatch(self.image_size), _SIZE_DUE),
            ("encoding", self.encoding in (None, "raw", "source"), "raw (pixels) or source (files as they are)"),
        ):
            if not fits:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be {due}")

    @property
    def reading(self) -> dict[str, object]:
        """What `registry.find_reader` takes beside the dataset."""
        size = tuple(map(int, self.image_size.split("x"))) if self.image_size else None
        return {
            "schema": self.schema,
            "image_size": size,
            "encoding": self.encoding,
            "download_dir": self.download_dir,
        }

    @property
    def arguments(self) -> dict[str, str | int | float]:
        """Those that decide the content: no paths. What a schema says is added by the source."""
        images = {"image_size": self.image_size, "encoding": self.encoding}
        return {
            "dataset": self.dataset,
            **{name: value for name, value in images.items() if value is not None},
            "shards": self.shards,
            "validation_fraction": float(self.validation_fraction),
            "test_fraction": float(self.test_fraction),
            "split_seed": self.split_seed,
        }
