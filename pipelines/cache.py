"""What earlier runs left for later ones: kfp.local's notes of where the dataset of a conversion is.

for dataset in forget_damaged(runs_dir):
    print(f"{dataset} was damaged; the next run converts it again")
"""

from __future__ import annotations

import json
import pathlib

from components.convert.writing import output
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest

CACHE = ".cache"  # beside the runs, and shared by all of them


def forget_damaged(runs_dir: pathlib.Path) -> list[str]:
    """Deletes the notes of datasets that are no longer what their manifests say. Returns their directories.

    kfp itself only looks whether the directory is there.
    """
    damaged = []
    for note in sorted((runs_dir / CACHE).glob("*.json")):
        dataset = json.loads(note.read_text(encoding="utf-8")).get("output", {}).get("uri", "")
        try:
            output.verify(pathlib.Path(dataset), Manifest.load(dataset))
        except UserError:
            note.unlink()
            damaged.append(dataset)
    return damaged
