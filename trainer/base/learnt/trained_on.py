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
from trainer.base.learnt.bloom import BloomFilter
from trainer.base.manifest import Manifest

FILE = "trained_on.npz"
_FORM = "form"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainedOn:
    """Training records, of the dataset and of those that the weights were trained on before.

    Attributes:
      form: What a record's hash is made of: of each feature but the label its name, type, shape, encoding, unit and default.
      filters: By a dataset's fingerprint the hashes of its training records.
    """

    form: str
    filters: Mapping[str, BloomFilter]

    @classmethod
    def of(cls, manifest: Manifest, hashes: Iterable[np.ndarray]) -> Self:
        """That of a dataset, by the hashes of its training split, which come in arrays."""
        held = BloomFilter.of(manifest.split("train").examples, hashes)
        return cls(form=_form(manifest), filters={manifest.fingerprint: held})

    def and_before(self, other: Self | None) -> Self:
        """With what the weights that training begins with have learnt from; records of another form are no records here."""
        before = other.filters if other and other.form == self.form else {}
        return dataclasses.replace(self, filters={**before, **self.filters})

    def unseen(self, manifest: Manifest, hashes: np.ndarray) -> np.ndarray:
        """Which records of a dataset that are not for training there, by their hashes [N], are none of these: bool [N].

        One in a hundred of those that are none is taken for one, but where the dataset is the same: then its splits say it.

        Raises:
          UserError: If records have another form there, so that their hashes tell nothing.
        """
        if self.form != _form(manifest):
            raise UserError(
                f"it was trained on records with other columns, types, units or defaults than dataset {manifest.name!r} has, "
                "so none can be known again; convert the dataset with those"
            )
        others = [held for fingerprint, held in self.filters.items() if fingerprint != manifest.fingerprint]
        return ~np.any([np.zeros(len(hashes), bool), *(held.holds(hashes) for held in others)], axis=0)

    def save(self, path: epath.PathLike) -> None:
        """Writes the file, whole or not at all."""
        content = io.BytesIO()
        arrays = {fingerprint: held.bits for fingerprint, held in self.filters.items()}
        np.savez(content, **{_FORM: np.array(self.form)}, **arrays)
        write_bytes(path, content.getvalue())

    @classmethod
    def load(cls, path: epath.PathLike) -> Self | None:
        """What was saved; None if there is no such file.

        Raises:
          UserError: If it is damaged.
        """
        with reading(path):
            if (content := read_bytes(path)) is None:
                return None
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                filters = {name: BloomFilter(bits=arrays[name]) for name in arrays if name != _FORM}
                return cls(form=str(arrays[_FORM]), filters=filters)


def _form(manifest: Manifest) -> str:
    return json.dumps(
        [
            [f.name, f.dtype, f.shape, f.encoding, f.unit, f.default]
            for f in manifest.features
            if f.name != manifest.label
        ]
    )
