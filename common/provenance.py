"""What a model is and was trained on, told by the SavedModel itself: `assets.extra/dataset.json` and `trained_on.npz` there.

Wherever the model lies by then, whoever scores it can tell whether it may have seen the records. Imports no TensorFlow.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from etils import epath

from common.errors import UserError
from common.manifest import Manifest
from common.storage.files import parsed_json, write_text
from common.trained_on import FILE as RECORDS
from common.trained_on import TrainedOn

_FILE, _RECORDS = "assets.extra/dataset.json", f"assets.extra/{RECORDS}"
# What decides which examples a split has; the test split is drawn first.
_DRAWN_BY = {"test": ("split_seed", "test_fraction")}
_DRAWN_BY["validation"] = (*_DRAWN_BY["test"], "validation_fraction")


def write(
    manifest: Manifest, model: str, model_dir: str, *, task: str | None = None, learnt: TrainedOn | None = None
) -> None:
    """Adds to a SavedModel the name of the model, what the dataset is that it was trained on, and the records it has learnt from.

    A `task` is the `package.module:function` that makes the model's task, where the dataset's label does not say it all.
    """
    path = epath.Path(model_dir) / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "model": model,
        "dataset": manifest.name,
        "fingerprint": manifest.fingerprint,
        "arguments": dict(manifest.arguments),
        **({"task": task} if task else {}),
    }
    write_text(path, json.dumps(facts, indent=1, sort_keys=True) + "\n")
    if learnt:
        learnt.save(epath.Path(model_dir) / _RECORDS)


def task_of(model_dir: str) -> str | None:
    """`package.module:function` that makes the model's task; None if its dataset says it, or another program made it."""
    with parsed_json(os.path.join(model_dir, _FILE)) as facts:
        return facts and facts.get("task")


def records_of(model_dir: str) -> TrainedOn | None:
    """The records that a model has learnt from; None if it does not tell."""
    return TrainedOn.load(os.path.join(model_dir, _RECORDS))


def trained_on(model_dir: str) -> tuple[str, Mapping[str, Any]] | None:
    """Name of the dataset that a model was trained on, and arguments of its conversion; None if it does not tell."""
    with parsed_json(os.path.join(model_dir, _FILE)) as facts:
        return None if facts is None else (facts["dataset"], dict(facts["arguments"]))


def check_drawn(manifest: Manifest, split: str, trained: str, arguments: Mapping[str, Any]) -> None:
    """Refuses what was trained on a dataset that was converted with `arguments` if other examples may be in the split here."""
    drawn = [(name, arguments.get(name), manifest.arguments.get(name)) for name in _DRAWN_BY[split]]
    if differences := [f"{name} {theirs} and not {ours}" for name, theirs, ours in drawn if theirs != ours]:
        raise UserError(
            f"{trained} was trained on a split with {', '.join(differences)}, so it may know records of {split} here; "
            "convert the dataset with that"
        )
