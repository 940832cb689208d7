"""Draws each record for training, validation or test, by a hash.

    splits = Splits(validation_fraction=0.1, test_fraction=0.2, seed=0)
    splits.assign(hashes, native="train", natives={"train"})    # int8 [N]: positions in SPLITS

The split of a record depends on the seed and the record's hash only, so it stays the same when data
are added.
"""

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np

from components.convert.hashes import splitmix64

SPLITS = ("train", "validation", "test")
# Split by each name that other programs give it.
NAMES = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Splits:
    """Fractions of the training records that are drawn for splits that the source does not have.

    Attributes:
      validation_fraction: Fraction of the records that are not drawn for the test split.
      test_fraction: Fraction of the training records.
      seed: Decides which records are drawn, and nothing else.
    """

    validation_fraction: float = 0.1
    test_fraction: float = 0.2
    seed: int = 0

    def assign(
        self,
        keys: np.ndarray,
        *,
        native: str,
        natives: Collection[str],
        assigned: Mapping[str, np.ndarray] | None = None,
    ) -> np.ndarray:
        """Returns the split of each record, as its position in `SPLITS`, int8 [N].

        A record that is for validation and for test is for test.

        Args:
          keys: Hashes, uint64 [N]; records with equal ones get the same split.
          native: Split in which the source has the records. Only those of `train` are drawn
            for others.
          natives: All splits that the source has.
          assigned: By split, bool [N]: which records the schema assigns to it. No hash decides on
            such a split.
        """
        result = np.full(len(keys), SPLITS.index(native), np.int8)
        if native != "train":
            return result
        seeds = splitmix64(self.seed, np.arange(2))
        for split, seed, fraction in (
            ("validation", seeds[1], self.validation_fraction),
            # The test split is last, so that it takes its fraction of all records.
            ("test", seeds[0], self.test_fraction),
        ):
            if split in natives:
                continue
            chosen = splitmix64(seed, keys) < np.uint64(fraction * 2**64)
            result[(assigned or {}).get(split, chosen)] = SPLITS.index(split)
        return result
