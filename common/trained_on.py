"""Which records weights have learnt from, by their content hashes: `trained_on.npz` of a job, and of the model that it exports.

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

from common.errors import UserError, reading
from common.manifest import Manifest
from common.storage.files import read_bytes, write_bytes

FILE = "trained_on.npz"
_FORM = "form"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainedOn:
    """Training records, of the dataset and of those that the weights were trained on before.

    Attributes:
      form: What a record's hash is made of: of each feature but the label its name, type, shape, encoding, unit and default.
      hashes: By a dataset's fingerprint the distinct hashes of its training records, uint64, in ascending order.
    """

    form: str
    hashes: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, manifest: Manifest, hashes: Iterable[np.ndarray]) -> Self:
        """Records of a dataset, by the hashes of its training split, which come in arrays."""
        distinct = np.unique(np.concatenate([*hashes]))
        return cls(form=_form(manifest), hashes={manifest.fingerprint: distinct})

    def and_before(self, other: Self | None) -> Self:
        """Adds what the weights that training begins with have learnt from; records of another form are no records here."""
        before = other.hashes if other and other.form == self.form else {}
        return dataclasses.replace(self, hashes={**before, **self.hashes})

    def unseen(self, manifest: Manifest, hashes: np.ndarray) -> np.ndarray:
        """Returns which records of a dataset, by their hashes [N], are none of these: bool [N].

        The records are not for training in that dataset. If it is one that the weights were trained on, its splits say what
        is not known, and records that its source has twice are not looked for.

        Raises:
          UserError: If records have another form there: their hashes tell nothing.
        """
        if self.form != _form(manifest):
            raise UserError(
                f"it was trained on records with other columns, types, units or defaults than dataset {manifest.name!r} has, "
                "so none can be known again; convert the dataset with those"
            )
        others = [known for fingerprint, known in self.hashes.items() if fingerprint != manifest.fingerprint]
        return ~np.isin(hashes, np.concatenate([np.empty(0, np.uint64), *others]))

    def save(self, path: epath.PathLike) -> None:
        """Writes the file, whole or not at all."""
        content = io.BytesIO()
        np.savez(content, **{_FORM: np.array(self.form)}, **self.hashes)
        write_bytes(path, content.getvalue())

    @classmethod
    def load(cls, path: epath.PathLike) -> Self | None:
        """Returns what was saved; None if there is no such file."""
        with reading(path):
            if (content := read_bytes(path)) is None:
                return None
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                hashes = dict(arrays)
                return cls(form=str(hashes.pop(_FORM)), hashes=hashes)


def _form(manifest: Manifest) -> str:
    features = [f for f in manifest.features if f.name != manifest.label]
    return json.dumps([[f.name, f.dtype, f.shape, f.encoding, f.unit, f.default] for f in features])
