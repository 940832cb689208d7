"""What to convert, and how: the flags of the command as a value."""

from __future__ import annotations

import dataclasses

from trainer.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Arguments of a conversion.

    Attributes:
      dataset: A name of `source.READERS`.
      source: The source's directory or file, or several files; None for an embedded dataset.
      schema: Schema file of the dataset `csv`.
      output: Directory of the result.
      shards: Files of the training split; the other splits get as many in proportion, at least one.
      test_fraction: Part of the training examples that becomes the test split, if the source has none.
      validation_fraction: Part of the rest that becomes the validation split, if the source has none.
      seed: Decides which examples these are.

    Raises:
      UserError: If a number is out of its range or a path is a URL.
    """

    dataset: str = "digits"
    source: str | tuple[str, ...] | None = None
    schema: str | None = None
    output: str
    shards: int = 8
    validation_fraction: float = 0.1
    test_fraction: float = 0.2
    seed: int = 0

    def __post_init__(self):
        sources = (self.source,) if isinstance(self.source, str) else self.source or ()
        flags = [("--source", path) for path in sources]
        for flag, path in (*flags, ("--schema", self.schema or ""), ("--output", self.output)):
            if "://" in path:
                raise UserError(f"{flag} {path}: must be a path here (a mounted bucket is one)")
        if self.shards < 1:
            raise UserError(f"--shards {self.shards}: must be at least 1")
        for flag in ("validation_fraction", "test_fraction"):
            if not 0 <= (fraction := getattr(self, flag)) < 1:
                raise UserError(f"--{flag.replace('_', '-')} {fraction}: must be at least 0 and less than 1")
        if not 0 <= self.seed < 2**64:
            raise UserError(f"--seed {self.seed}: must be at least 0 and less than 2**64")

    @property
    def arguments(self) -> dict[str, str | int | float]:
        """Those that decide the content: no paths. What a schema says is added by the source."""
        return {
            "dataset": self.dataset,
            "shards": self.shards,
            "validation_fraction": float(self.validation_fraction),
            "test_fraction": float(self.test_fraction),
            "seed": self.seed,
        }
