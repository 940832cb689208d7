"""Records that models are judged by: a split of a dataset, and masks of its records.

records = EvalSet.load("data/mnist", "test")
chosen = records.unseen("jobs/m/model")  # bool [N]; False where the model was trained on the record
require_enough(chosen, "test", "the model was not trained on them")
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

# Least number of records to judge by. Two good models differ on about a tenth of the records. Of 50
# records that is five, and five of five is the least that is significant at 5 % (1 / 2**5).
LEAST = 50
_BATCH = 512


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EvalSet:
    """One split of a dataset, and the task that models solve on it.

    Whatever reads records raises `UserError` if a file is missing or damaged, or if the split is
    empty; and `ConnectionError` if a store does not answer.

    Attributes:
      manifest: Manifest of the dataset.
      data_dir: Directory of the dataset.
      split: Name of the split.
      task: Task, which has the metrics.
    """

    manifest: Manifest
    data_dir: str
    split: str
    task: Task

    @classmethod
    def load(cls, data_dir: str, split: str, task: str | None = None) -> Self:
        """Reads the manifest of a dataset.

        Args:
          data_dir: Directory of the dataset.
          split: Name of the split, which is not checked here; reading its records fails without it.
          task: `package.module:function` that makes the task from the manifest; None for the usual
            task of the dataset's label.

        Raises:
          UserError: If there is no finished dataset in the directory, its manifest cannot be used,
            or there is no such function.
          ConnectionError: If a store does not answer.
        """
        manifest = Manifest.load(data_dir)
        return cls(
            manifest=manifest, data_dir=data_dir, split=split, task=registry.task(task, manifest)
        )

    def __len__(self) -> int:
        return self.manifest.split(self.split).examples

    def batches(self) -> Iterator[Columns]:
        """Yields the records in order, in batches of [n, *shape] by feature name, label included.

        A batch has at most 512 records, as tensors. Image files are decoded.

        Raises:
          UserError: If the split is empty, or a file is missing or damaged.
          ConnectionError: If a store does not answer.
        """
        return records.batches(self.manifest, self.data_dir, self.split, _BATCH)

    @functools.cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Columns of the split by feature name, [N, *shape] each, label included.

        Image files are not decoded: their column has their contents, [N]. Texts are bytes. The
        checksums of the records are verified.

        Raises:
          UserError: If the split is empty, or a file is missing or damaged.
          ConnectionError: If a store does not answer.
        """
        columns = records.load(self.manifest, self.data_dir, self.split)
        return {name: column.numpy() for name, column in columns.items()}

    @functools.cached_property
    def _hashes(self) -> np.ndarray:
        return np.concatenate([*content_hashes(self.manifest, self.data_dir, self.split)])

    def unseen(self, model_dir: str) -> np.ndarray:
        """Returns which records a model was not trained on, bool [N].

        A model keeps hashes of its training records. Those of other datasets than this are compared
        with the records here, and a record with an equal hash has been seen. Hashes of this dataset
        (equal fingerprint) are not compared, since its training split does not overlap this one. So
        a record that the source has twice, here and in the training split, counts as unseen.

        If the model keeps no hashes, all records count as unseen. Its splits must then have been
        drawn as those here, unless another program made the model and nothing is known of them.

        Raises:
          UserError: If records cannot be recognised: those of the model have other columns, or it
            keeps only how its splits were drawn, and that was otherwise than here. Also if the
            model's files about this, or the hashes of the split, are damaged.
          ConnectionError: If a store does not answer.
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
        """Mask of the records that are equal to a training record of the same dataset, bool [N].

        The source of such a dataset has records twice. Labels are not compared.

        Raises:
          UserError: If this or the training split is empty, or a file is missing or damaged.
          ConnectionError: If a store does not answer.
        """
        training = content_hashes(self.manifest, self.data_dir, "train")
        return np.logical_or.reduce([np.isin(self._hashes, part) for part in training])


def require_enough(chosen: np.ndarray, split: str, which: str, way: str = "") -> None:
    """Checks that enough records of a split are left to judge a model by.

    A split that is used as a whole is always enough, however small.

    Args:
      chosen: Mask of the records that are left, bool [N].
      split: Name of the split.
      which: What is true of the records that are left, for the message.
      way: Another remedy, for the end of the message.

    Raises:
      UserError: If fewer than `LEAST` records are left, and not all.
    """
    if (left := int(chosen.sum())) < LEAST and left < len(chosen):
        raise UserError(
            f"only {left:,} of {len(chosen):,} records of {split} are such that {which}, and to "
            f"judge takes {LEAST}; evaluate on a dataset with more new records{way}"
        )
