"""The records that models are judged by: a split of a dataset, and which of them a model may be judged by.

records = EvalSet.load("data/mnist", "test")
chosen = records.unseen("jobs/m/model")     # bool [N]: those that it was not trained on, wherever
it was trained require_enough(chosen, "test", "the model was not trained on")
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Self

import numpy as np

from common import provenance
from common.errors import UserError
from common.manifest import Manifest
from trainer.data import records
from trainer.data.features import Columns
from trainer.data.shards import content_hashes
from trainer.models import registry
from trainer.tasks.task import Task

# Where two models differ on a tenth of the records, as good ones do, these are five on which just
# one is right: the least by which the better can be told at 5 % (1 / 2**5).
LEAST = 50
_BATCH = 512


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EvalSet:
    """A split of a dataset, and the task that models have there. Whatever reads it raises UserError for damaged files."""

    manifest: Manifest
    data_dir: str
    split: str
    task: Task

    @classmethod
    def load(cls, data_dir: str, split: str, task: str | None = None) -> Self:
        """Reads the manifest of a dataset, whose task is what `package.module:function` makes of it, if there is such."""
        manifest = Manifest.load(data_dir)
        return cls(
            manifest=manifest, data_dir=data_dir, split=split, task=registry.task(task, manifest)
        )

    def __len__(self) -> int:
        return self.manifest.split(self.split).examples

    def batches(self) -> Iterator[Columns]:
        """Returns all records in their order."""
        return records.batches(self.manifest, self.data_dir, self.split, _BATCH)

    @functools.cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Columns of a table by name, [N] each, verified."""
        columns = records.load(self.manifest, self.data_dir, self.split)
        return {name: column.numpy() for name, column in columns.items()}

    @functools.cached_property
    def _hashes(self) -> np.ndarray:
        return np.concatenate([*content_hashes(self.manifest, self.data_dir, self.split)])

    def unseen(self, model_dir: str) -> np.ndarray:
        """Returns which records a model was not trained on, bool [N]: all if it was trained on this very dataset.

        Of a model that does not tell its records all are taken, and of one of another program,
        which tells nothing, too. A UserError if that cannot be known: the records have another form
        here, or the model tells only how its splits were drawn, and that was otherwise.
        """
        if (learnt := provenance.records_of(model_dir)) is None:
            if trained := provenance.trained_on(model_dir):
                provenance.check_drawn(self.manifest, self.split, model_dir, trained[1])
            return np.ones(len(self), bool)
        try:
            return learnt.unseen(self.manifest, self._hashes)
        except UserError as error:
            raise UserError(f"{model_dir}: {error}") from None

    @functools.cached_property
    def repeated(self) -> np.ndarray:
        """Marks records that are equal to one for training in the same dataset, bool [N]: its source has them twice."""
        training = content_hashes(self.manifest, self.data_dir, "train")
        return np.logical_or.reduce([np.isin(self._hashes, part) for part in training])


def require_enough(chosen: np.ndarray, split: str, which: str, way: str = "") -> None:
    """Refuses to judge by what is left of a split, bool [N], if that is too little, with another `way`; a whole one never is."""
    if (left := int(chosen.sum())) < LEAST and left < len(chosen):
        raise UserError(
            f"only {left:,} of {len(chosen):,} records of {split} are such that {which}, and to "
            f"judge takes {LEAST}; evaluate "
            f"on a dataset with more new records{way}"
        )
