"""Training, validation or test, drawn for each record by a hash of it.

    splits = Splits(validation_fraction=0.1, test_fraction=0.2, seed=0)
    splits.assign(hashes, native="train", natives={"train"})           # int8 [N]: places in SPLITS

A record's split depends on the seed and on its hash alone, so it stays where it is when data are
added.
"""

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np

from common.errors import UserError
from components.convert.hashes import splitmix64

SPLITS = ("train", "validation", "test")
NAMES = {  # That others give to splits.
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Splits:
    """Shares of the training records that become the other splits, where the source has none of its own.

    Attributes:
      validation_fraction: Part of the records that the test split leaves.
      test_fraction: Part of the training records.
      seed: Decides which records these are, and nothing else.
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
        """Returns the split of each record, int8 [N], as places in `SPLITS`.

        Args:
          keys: uint64 [N]; equal ones go to one split.
          native: Split that the source has the records in.
          natives: All splits that the source has.
          assigned: By split, the records that a schema puts there, bool [N]; no hash decides of
            that split then.

        Raises:
          UserError: If a schema assigns records, and the source has splits of its own.
        """
        assigned = assigned or {}
        if assigned and set(natives) != {"train"}:
            own = ", ".join(sorted({*natives} - {"train"}))
            raise UserError(
                f"split: the source has its own {own}; take split out of the schema, or give "
                "training files only"
            )
        result = np.full(len(keys), SPLITS.index(native), np.int8)
        if native != "train":
            return result
        seeds = splitmix64(self.seed, np.arange(2))
        for split, seed, fraction in (
            ("validation", seeds[1], self.validation_fraction),
            ("test", seeds[0], self.test_fraction),  # Last: it takes of all records.
        ):
            if split in natives:
                continue
            chosen = splitmix64(seed, keys) < np.uint64(fraction * 2**64)
            result[assigned.get(split, chosen)] = SPLITS.index(split)
        return result
