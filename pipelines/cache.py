"""What earlier runs left for later ones: kfp.local's notes of where the dataset of a conversion is.

kfp goes by the arguments of a step, so one of them is a key of all else that decides what comes of it.

for dataset in forget_damaged(runs_dir):
    print(f"{dataset} was damaged; the next run converts it again")
"""

import hashlib
import json
import pathlib
from collections.abc import Sequence

from components.convert.sources.registry import source_digest
from components.convert.writing import output
from trainer.base.errors import UserError
from trainer.base.manifest import Manifest

CACHE = ".cache"  # beside the runs, and shared by all of them
# The code that makes a dataset and its page: the step, and all that it imports.
_CODE = ("components/convert", "components/evaluate/report.py", "components/evaluate/templates", "trainer/base")


def cache_key(dataset: str, sources: Sequence[str], schema: str | None = None) -> str:
    """SHA-256 (hexadecimal) over a source's files, its schema file if it needs one, and the code that converts them.

    Raises:
      UserError: If the dataset is unknown or its files are missing.
    """
    source = sources[0] if len(sources) == 1 else tuple(sources) or None
    content = source_digest(dataset, source, schema) + code_digest(pathlib.Path(__file__).parents[1])
    return hashlib.sha256(content.encode()).hexdigest()


def code_digest(root: pathlib.Path) -> str:
    """SHA-256 (hexadecimal) over names and contents of all files of the code below `root` that makes a dataset."""
    digest = hashlib.sha256()
    for path in sorted(path for part in _CODE for path in (root / part, *(root / part).rglob("*"))):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


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
