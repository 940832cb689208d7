"""Dataset and records that a model was trained on, stored in its SavedModel.

    learnt = TrainedOn.of(manifest, content_hashes(manifest, data_dir, "train"))
    write(manifest, "cnn", "jobs/m/model", learnt=learnt)
    records_of("jobs/m/model").unseen(manifest, hashes)     # bool [N]

The files are `assets.extra/dataset.json` and `assets.extra/trained_on.npz`. By them, anyone who
scores the model can tell which records it may have seen, wherever model and records lie by then.
Imports no TensorFlow.
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

RECORDS = "trained_on.npz"  # A job has this file too, in its own directory.
# Names of signatures.
SERVING_DEFAULT, RAW, IMAGE_BYTES = "serving_default", "raw", "image_bytes"
_ASSETS, _FILE, _FORM = "assets.extra", "dataset.json", "form"
# Arguments that decide which examples a split has. The test split is drawn first, so its fraction
# also decides what is left for validation.
_DRAWN_BY = {
    "test": ("split_seed", "test_fraction"),
    "validation": ("split_seed", "test_fraction", "validation_fraction"),
}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainedOn:
    """Training records of a model: of its dataset, and of those that its first weights came from.

    Attributes:
      form: What is hashed of a record: for each feature but the label its name, type, shape,
        encoding, unit and default, as JSON.
      hashes: Distinct hashes of the training records, by the fingerprint of their dataset; uint64,
        in ascending order.
    """

    form: str
    hashes: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, manifest: Manifest, hashes: Iterable[np.ndarray]) -> Self:
        """Returns the training records of one dataset.

        Args:
          manifest: Manifest of the dataset.
          hashes: Hashes of its training records, in one or more arrays of uint64.
        """
        return cls(
            form=_form(manifest),
            hashes={manifest.fingerprint: np.unique(np.concatenate([*hashes]))},
        )

    def and_before(self, other: Self | None) -> Self:
        """Returns these records and those of the model that training began with.

        Args:
          other: Records of that model, or None. They are left out if they have another `form`, as
            hashes of other features have no meaning here.
        """
        before = other.hashes if other and other.form == self.form else {}
        return dataclasses.replace(self, hashes={**before, **self.hashes})

    def unseen(self, manifest: Manifest, hashes: np.ndarray) -> np.ndarray:
        """Returns a mask of the records that are not among these: bool [N].

        Hashes of a dataset with the same fingerprint are not compared: its splits already say which
        records were trained on, and a record that its source has twice counts as unseen.

        Args:
          manifest: Manifest of the dataset that the records are from.
          hashes: Hashes of records outside its training split, uint64 [N].

        Raises:
          UserError: If its records have another `form`, so that hashes cannot be compared.
        """
        if self.form != _form(manifest):
            raise UserError(
                "it was trained on records with other columns, types, units or defaults than "
                f"dataset {manifest.name!r} has, so none can be known again; convert the dataset "
                "with those"
            )
        others = [
            known
            for fingerprint, known in self.hashes.items()
            if fingerprint != manifest.fingerprint
        ]
        return ~np.isin(hashes, np.concatenate([np.empty(0, np.uint64), *others]))

    def save(self, directory: str) -> None:
        """Writes `trained_on.npz` into a directory, complete or not at all.

        Raises:
          UserError: If a store refuses the request.
          OSError: If it cannot be written, or a store does not answer.
        """
        content = io.BytesIO()
        # mypy also compares the arrays with the flag `allow_pickle`.
        np.savez(content, **{_FORM: np.array(self.form)}, **self.hashes)  # type: ignore[arg-type]
        write_bytes(os.path.join(directory, RECORDS), content.getvalue())

    @classmethod
    def load(cls, directory: str) -> Self | None:
        """Returns the records that were saved in a directory; None if there is no such file.

        Raises:
          UserError: If the file cannot be used.
          ConnectionError: If a store does not answer.
        """
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
    """Adds `dataset.json` and `trained_on.npz` to a SavedModel's directory `assets.extra`.

    They say what the model is, and which records it was trained on.

    Args:
      manifest: Manifest of the dataset.
      model: Name of the model.
      model_dir: Directory of the SavedModel.
      task: `package.module:function` that makes the model's task, perhaps with its keywords as JSON
        behind a space, if the dataset's label does not define it; otherwise None.
      learnt: Records that the model was trained on; None to leave `trained_on.npz` out.
      signatures: Names of the model's signatures.

    Raises:
      UserError: If a store refuses the request.
      OSError: If a file cannot be written, or a store does not answer.
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
    """Returns `package.module:function` that makes a model's task, and perhaps its keywords.

    The keywords are JSON behind a space. Returns None if the dataset's label defines the task, or
    if the model has no `dataset.json`, as one that another program made.

    Raises:
      UserError: If the model's `dataset.json` cannot be used.
      ConnectionError: If a store does not answer.
    """
    with parsed_json(os.path.join(model_dir, _ASSETS, _FILE)) as facts:
        return None if facts is None else facts["task"]


def taken_by(model_dir: str) -> tuple[list[str], list[Feature]]:
    """Returns the names of a model's signatures, and the columns of a table that it takes.

    The columns are the inputs as the source of its dataset has them, without their statistics;
    there are none for images. Both lists are empty if the model has no `dataset.json`, as one that
    another program made.

    Raises:
      UserError: If the model's `dataset.json` cannot be used.
      ConnectionError: If a store does not answer.
    """
    with parsed_json(os.path.join(model_dir, _ASSETS, _FILE)) as facts:
        if facts is None:
            return [], []
        return facts["signatures"], pydantic.TypeAdapter(list[Feature]).validate_python(
            facts["columns"]
        )


def records_of(model_dir: str) -> TrainedOn | None:
    """Returns hashes of the records that a model was trained on, from its `trained_on.npz`.

    Returns None if it has no such file.

    Raises:
      UserError: If that file cannot be used.
      ConnectionError: If a store does not answer.
    """
    return TrainedOn.load(os.path.join(model_dir, _ASSETS))


def trained_on(model_dir: str) -> tuple[str, Mapping[str, Any]] | None:
    """Returns the name of a model's dataset and the arguments of that dataset's conversion.

    Returns None if the model has no `dataset.json`, as one that another program made.

    Raises:
      UserError: If the model's `dataset.json` cannot be used.
      ConnectionError: If a store does not answer.
    """
    with parsed_json(os.path.join(model_dir, _ASSETS, _FILE)) as facts:
        return None if facts is None else (facts["dataset"], dict(facts["arguments"]))


def check_drawn(manifest: Manifest, split: str, trained: str, arguments: Mapping[str, Any]) -> None:
    """Checks that a model's training data were split from the source as the dataset here is.

    Otherwise records of `split` here may have been training records there.

    Args:
      manifest: Manifest of the dataset here.
      split: `validation` or `test`.
      trained: Name of the model, for the message.
      arguments: Arguments of the conversion of the dataset that the model was trained on.

    Raises:
      UserError: If the seed of the split or the fraction of the test split differ or, for
        `validation`, the fraction of the validation split.
    """
    drawn = [(name, arguments.get(name), manifest.arguments.get(name)) for name in _DRAWN_BY[split]]
    if differences := [
        f"{name} {theirs} and not {ours}" for name, theirs, ours in drawn if theirs != ours
    ]:
        raise UserError(
            f"{trained} was trained on a split with {', '.join(differences)}, so it may know "
            f"records of {split} here; convert the dataset with that"
        )
