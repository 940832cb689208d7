"""Parts of a split: the records of each class, and of each value of a column."""

from collections.abc import Collection, Iterator

import numpy as np

from components.evaluate.baseline import columns
from trainer.base.errors import UserError, unknown
from trainer.base.manifest import Manifest

_MOST_VALUES = 100


def slices(
    manifest: Manifest, data_dir: str, split: str, labels: np.ndarray, names: Collection[str]
) -> Iterator[tuple[str, str, np.ndarray]]:
    """For each value of these columns the column, the value in words, and which records have it, bool [N].

    Args:
      manifest: Of the dataset.
      data_dir: Where it is.
      split: Of whose records.
      labels: Of these records; the label of a classification is a column whose values are the classes.
      names: Of columns.

    Raises:
      UserError: If there is no such column, or it has too many values to look at each.
    """
    known = {f.name for f in manifest.features if f.name != manifest.label} if manifest.is_table else set()
    known |= {manifest.label} if manifest.class_names else set()
    table = columns(manifest, data_dir, split) if {*names} & known - {manifest.label} else {}
    for name in names:
        if name not in known:
            raise unknown(f"column of dataset {manifest.name!r} to slice by", name, known)
        values = table[name] if name in table and name != manifest.label else np.array(manifest.class_names)[labels]
        distinct = np.unique(values)
        if len(distinct) > _MOST_VALUES:
            raise UserError(
                f"slices.{name}: {len(distinct):,} different values; {_MOST_VALUES} can be looked at one by one"
            )
        for value in distinct:
            yield name, value.decode(errors="replace") if isinstance(value, bytes) else str(value), values == value
