"""Records and dataset that a model was trained on, as its SavedModel says: `assets.extra/dataset.json` and `assets.extra/trained_on.npz`.

    learnt = TrainedOn.of(manifest, content_hashes(manifest, data_dir, "train"))
    write(manifest, "cnn", "jobs/m/model", learnt=learnt)
    records_of("jobs/m/model").unseen(manifest, hashes)     # bool [N]

Wherever the model and the records lie by then, whoever scores it can tell whether it may have seen
them. Imports no TensorFlow.
"""

import dataclasses
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pydantic

from common.errors import UserError, reading
from common.manifest import Feature, Manifest
from common.storage.files import parsed_json, read_bytes, write_bytes, write_text

RECORDS = "trained_on.npz"  # Of a job and, below this directory, of a model.
SERVING_DEFAULT, RAW, FAULTS, IMAGE_BYTES = (
    "serving_default",
    "raw",
    "faults",
    "image_bytes",
)  # Signatures of a model.
_ASSETS, _FILE, _FORM = "assets.extra", "dataset.json", "form"
# What decides which examples a split has; the test split is drawn first.
_DRAWN_BY = {
    "test": ("split_seed", "test_fraction"),
    "validation": ("split_seed", "test_fraction", "validation_fraction"),
}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainedOn:
    """Training records, of the dataset and of those that the weights were trained on before.

    Attributes:
      form: What a record's hash is made of: of each feature but the label its name, type, shape,
        encoding, unit and default.
      hashes: By a dataset's fingerprint the distinct hashes of its training records, uint64, in
        ascending order.
    """

    form: str
    hashes: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, manifest: Manifest, hashes: Iterable[np.ndarray]) -> Self:
        """Records of a dataset, by the hashes of its training split, which come in arrays."""
        return cls(
            form=_form(manifest),
            hashes={manifest.fingerprint: np.unique(np.concatenate([*hashes]))},
        )

    def and_before(self, other: Self | None) -> Self:
        """Adds what the weights that training begins with have learnt from; records of another form are no records here."""
        before = other.hashes if other and other.form == self.form else {}
        return dataclasses.replace(self, hashes={**before, **self.hashes})

    def unseen(self, manifest: Manifest, hashes: np.ndarray) -> np.ndarray:
        """Returns which records of a dataset, by their hashes [N], are none of these: bool [N].

        The records are not for training in that dataset. If it is one that the weights were trained
        on, its splits say what is not known, and records that its source has twice are not looked
        for.

        Raises:
          UserError: If records have another form there: their hashes tell nothing.
        """
        if self.form != _form(manifest):
            raise UserError(
                "it was trained on records with other columns, types, units or defaults than "
                f"dataset {manifest.name!r} has, "
                "so none can be known again; convert the dataset with those"
            )
        others = [
            known
            for fingerprint, known in self.hashes.items()
            if fingerprint != manifest.fingerprint
        ]
        return ~np.isin(hashes, np.concatenate([np.empty(0, np.uint64), *others]))

    def save(self, directory: str) -> None:
        """Writes the file into a directory, whole or not at all."""
        content = io.BytesIO()
        np.savez(content, **{_FORM: np.array(self.form)}, **self.hashes)
        write_bytes(os.path.join(directory, RECORDS), content.getvalue())

    @classmethod
    def load(cls, directory: str) -> Self | None:
        """Returns what was saved in a directory; None if there is no such file."""
        path = os.path.join(directory, RECORDS)
        with reading(path):
            if (content := read_bytes(path)) is None:
                return None
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                hashes = dict(arrays)
                return cls(form=str(hashes.pop(_FORM)), hashes=hashes)


def _form(manifest: Manifest) -> str:
    features = [f for f in manifest.features if f.name != manifest.label]
    return json.dumps([[f.name, f.dtype, f.shape, f.encoding, f.unit, f.default] for f in features])


def write(
    manifest: Manifest,
    model: str,
    model_dir: str,
    *,
    task: str | None = None,
    learnt: TrainedOn | None = None,
    signatures: Sequence[str] = (),
) -> None:
    """Adds to a SavedModel what it is and was trained on.

    Args:
      manifest: The dataset's.
      model: Name of the model.
      model_dir: Directory of the SavedModel.
      task: `package.module:function` that makes the model's task, where the dataset's label does
        not say it all.
      learnt: Records that it has learnt from.
      signatures: Names of what it can be asked by.
    """
    facts = {
        "model": model,
        "dataset": manifest.name,
        "fingerprint": manifest.fingerprint,
        "task": task,
        "arguments": dict(manifest.arguments),
        "signatures": signatures,
        "columns": [
            dataclasses.asdict(dataclasses.replace(f, statistics=None))
            for f in manifest.source_columns
        ],
    }
    write_text(
        os.path.join(model_dir, _ASSETS, _FILE), json.dumps(facts, indent=1, sort_keys=True) + "\n"
    )
    if learnt:
        learnt.save(os.path.join(model_dir, _ASSETS))


def task_of(model_dir: str) -> str | None:
    """Returns `package.module:function` that makes the model's task; None if its dataset says it, or another program made it."""
    with parsed_json(os.path.join(model_dir, _ASSETS, _FILE)) as facts:
        return None if facts is None else facts["task"]


def taken_by(model_dir: str) -> tuple[list[str], list[Feature]]:
    """Returns the names of a model's signatures, and the columns that it takes of a table, as the source of its dataset has them.

    Of images there are no columns; of a model that another program made there is nothing.
    """
    with parsed_json(os.path.join(model_dir, _ASSETS, _FILE)) as facts:
        if facts is None:
            return [], []
        return facts["signatures"], pydantic.TypeAdapter(list[Feature]).validate_python(
            facts["columns"]
        )


def records_of(model_dir: str) -> TrainedOn | None:
    """Returns the records that a model has learnt from; None if it does not tell."""
    return TrainedOn.load(os.path.join(model_dir, _ASSETS))


def trained_on(model_dir: str) -> tuple[str, Mapping[str, Any]] | None:
    """Returns the name of a model's dataset and the arguments of its conversion; None if it does not tell."""
    with parsed_json(os.path.join(model_dir, _ASSETS, _FILE)) as facts:
        return None if facts is None else (facts["dataset"], dict(facts["arguments"]))


def check_drawn(manifest: Manifest, split: str, trained: str, arguments: Mapping[str, Any]) -> None:
    """Refuses what was trained on a dataset that was converted with `arguments` if other examples may be in the split here."""
    drawn = [(name, arguments.get(name), manifest.arguments.get(name)) for name in _DRAWN_BY[split]]
    if differences := [
        f"{name} {theirs} and not {ours}" for name, theirs, ours in drawn if theirs != ours
    ]:
        raise UserError(
            f"{trained} was trained on a split with {', '.join(differences)}, so it may know "
            f"records of {split} here; "
            "convert the dataset with that"
        )
