"""Which records weights have learnt from, in ten bits a record: `trained_on.npz` of a job, and of the model that it exports.

    learnt = TrainedOn.of(manifest, content_hashes(manifest, data_dir, "train"))
    learnt.save("jobs/m/trained_on.npz")
    learnt.unseen(manifest, hashes)     # bool [N]

Whatever dataset a record lies in later, its hash tells whether the weights know it. Imports no TensorFlow.
"""

import dataclasses
import io
import json
from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from etils import epath

from trainer.base.errors import UserError, reading
from trainer.base.files import read_bytes, write_bytes
from trainer.base.learnt.bloom import bloom_filter, holds
from trainer.base.manifest import Manifest

FILE = "trained_on.npz"
_FORM = "form"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainedOn:
    """Training records, of the dataset and of those that the weights were trained on before.

    Attributes:
      form: What a record's hash is made of: of each feature but the label its name, type, shape, encoding, unit and default.
      filters: By a dataset's fingerprint the bits of a Bloom filter: the hashes of its training records.
    """

    form: str
    filters: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, manifest: Manifest, hashes: Iterable[np.ndarray]) -> Self:
        """That of a dataset, by the hashes of its training split, which come in arrays."""
        bits = bloom_filter(manifest.split("train").examples, hashes)
        return cls(form=_form(manifest), filters={manifest.fingerprint: bits})

    def and_before(self, other: Self | None) -> Self:
        """With what the weights that training begins with have learnt from; records of another form are no records here."""
        before = other.filters if other and other.form == self.form else {}
        return dataclasses.replace(self, filters={**before, **self.filters})

    def unseen(self, manifest: Manifest, hashes: np.ndarray) -> np.ndarray:
        """Which records of a dataset that are not for training there, by their hashes [N], are none of these: bool [N].

        One in a hundred of those that are none is taken for one, but where the dataset is the same: then its splits say it.
        Records that have another form there are refused: their hashes tell nothing.
        """
        if self.form != _form(manifest):
            raise UserError(
                f"it was trained on records with other columns, types, units or defaults than dataset {manifest.name!r} has, "
                "so none can be known again; convert the dataset with those"
            )
        others = [bits for fingerprint, bits in self.filters.items() if fingerprint != manifest.fingerprint]
        return ~np.any([np.zeros(len(hashes), bool), *(holds(bits, hashes) for bits in others)], axis=0)

    def save(self, path: epath.PathLike) -> None:
        """Writes the file, whole or not at all."""
        content = io.BytesIO()
        np.savez(content, **{_FORM: np.array(self.form)}, **self.filters)
        write_bytes(path, content.getvalue())

    @classmethod
    def load(cls, path: epath.PathLike) -> Self | None:
        """What was saved; None if there is no such file."""
        with reading(path):
            if (content := read_bytes(path)) is None:
                return None
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                held = dict(arrays)
                return cls(form=str(held.pop(_FORM)), filters=held)


def _form(manifest: Manifest) -> str:
    features = [f for f in manifest.features if f.name != manifest.label]
    return json.dumps([[f.name, f.dtype, f.shape, f.encoding, f.unit, f.default] for f in features])
