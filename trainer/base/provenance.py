"""What a model is and was trained on, told by the SavedModel itself: `assets.extra/dataset.json`.

Wherever the model lies by then, whoever scores it can tell whether it may have seen the records. Imports no TensorFlow.
"""

import json

from etils import epath

from trainer.base.errors import UserError, reading
from trainer.base.files import read_json, write_text
from trainer.base.manifest import Manifest

_FILE = "assets.extra/dataset.json"
# What decides which examples a split has; the test split is drawn first.
_DRAWN_BY = {"test": ("split_seed", "test_fraction")}
_DRAWN_BY["validation"] = (*_DRAWN_BY["test"], "validation_fraction")


def write(manifest: Manifest, model: str, model_dir: str) -> None:
    """Adds to a SavedModel the name of the model, and what the dataset is that it was trained on."""
    path = epath.Path(model_dir) / _FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "model": model,
        "dataset": manifest.name,
        "fingerprint": manifest.fingerprint,
        "arguments": dict(manifest.arguments),
    }
    write_text(path, json.dumps(facts, indent=1, sort_keys=True) + "\n")


def model_of(model_dir: str) -> str | None:
    """The trainer's `--model`; None of a model of another program."""
    path = epath.Path(model_dir) / _FILE
    with reading(path):
        return (read_json(path) or {}).get("model")


def check_unseen(manifest: Manifest, split: str, model_dir: str) -> None:
    """Refuses to judge a model by records that it may have been trained on. A model of another program tells nothing.

    Raises:
      UserError: If its training split was drawn otherwise than this dataset's.
    """
    path = epath.Path(model_dir) / _FILE
    with reading(path):
        if (facts := read_json(path)) is None:
            return
        trained = facts["arguments"]
        drawn = [(name, trained.get(name), manifest.arguments.get(name)) for name in _DRAWN_BY[split]]
    if differences := [f"{name} {theirs} and not {ours}" for name, theirs, ours in drawn if theirs != ours]:
        raise UserError(
            f"{model_dir} was trained on a split with {', '.join(differences)}, so it may know records of {split} here; "
            "convert the dataset with that"
        )
