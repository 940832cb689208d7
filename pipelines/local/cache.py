"""What runs share: converted datasets, each in a directory by a key of all that decides what comes of a conversion."""

import hashlib
import json
import pathlib
import re
from collections.abc import Sequence

from components.convert.sources.registry import source_digest

STORE = ".datasets"  # beside the runs, and shared by all of them
# The code that makes a dataset and its page: the step, and all that it imports.
_CODE = ("common", "components/convert", "trainer/cluster/member.py")


def cache_key(dataset: str, sources: Sequence[str], schema: str | None = None) -> str:
    """SHA-256 (hexadecimal) over a source's files, its schema file if it needs one, and the code that converts them."""
    source = sources[0] if len(sources) == 1 else tuple(sources) or None
    content = source_digest(dataset, source, schema) + code_digest(pathlib.Path(__file__).parents[2])
    return hashlib.sha256(content.encode()).hexdigest()


def code_digest(root: pathlib.Path) -> str:
    """SHA-256 (hexadecimal) over names and contents of all files of the code below `root` that makes a dataset."""
    digest = hashlib.sha256()
    for path in sorted(path for part in _CODE for path in (root / part, *(root / part).rglob("*"))):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def dataset_dir(runs_dir: pathlib.Path, dataset: str, *decides: object) -> pathlib.Path:
    """Where the dataset that is asked for by that name lies, by its `cache_key` and all else that decides what it is."""
    digest = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
    return runs_dir / STORE / f"{re.sub('[:/]', '-', dataset)}-{digest[:16]}"
