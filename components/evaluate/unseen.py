"""Which records of a split a model may be judged by: those that it was not trained on, wherever it was trained.

chosen = unseen(manifest, "data/mnist", "test", "jobs/m/model")     # bool [N]
require_enough(chosen, "test", "the model was not trained on")
"""

import numpy as np

from trainer.base import provenance
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest
from trainer.data.reader.shards import content_hashes

# Where two models differ on a tenth of the records, as good ones do, these are five on which just one is right: the least by
# which the better can be told at 5 % (1 / 2**5).
LEAST = 50


def unseen(manifest: Manifest, data_dir: str, split: str, model_dir: str) -> np.ndarray:
    """Which records of a split a model was not trained on, bool [N]: all if it was trained on this very dataset.

    Of a model that does not tell its records all are taken, and of one of another program, which tells nothing, too.

    Raises:
      UserError: If that cannot be known: the records have another form here, or the model tells only how its splits were
        drawn, and that was otherwise. If a file of the dataset is missing or damaged.
    """
    if (learnt := provenance.records_of(model_dir)) is None:
        if trained := provenance.trained_on(model_dir):
            provenance.check_drawn(manifest, split, model_dir, trained[1])
        return np.ones(manifest.split(split).examples, bool)
    try:
        return learnt.unseen(manifest, np.concatenate([*content_hashes(manifest, data_dir, split)]))
    except UserError as error:
        raise UserError(f"{model_dir}: {error}") from None


def repeated(manifest: Manifest, data_dir: str, split: str) -> int:
    """How many records of a split are equal to one that is for training in the same dataset: its source has them twice."""
    hashes = np.concatenate([*content_hashes(manifest, data_dir, split)])
    found = (np.isin(hashes, part) for part in content_hashes(manifest, data_dir, "train"))
    return int(np.logical_or.reduce([*found]).sum())


def require_enough(chosen: np.ndarray, split: str, which: str) -> None:
    """Refuses to judge by what is left of a split, bool [N], if that is too little; a whole split is never too little."""
    if (left := int(chosen.sum())) < LEAST and left < len(chosen):
        raise UserError(
            f"only {left:,} of {len(chosen):,} records of {split} are such that {which}, and to judge takes {LEAST}; evaluate "
            "on a dataset with more new records"
        )
