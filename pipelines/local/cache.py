"""Converted datasets that runs share, each in a directory by a key of all that decides the result of its conversion.

kfp.local caches steps by their arguments within one run, for a resume; of the data and the
project's code it knows nothing.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Sequence

from components.convert.sources.registry import source_digest
from components.convert.step import parsed_options

STORE = ".datasets"  # beside the runs, and shared by all of them
# The code that makes a dataset and its page: the step, and all that it imports.
CODE = ("common/**/*", "components/convert/**/*", "trainer/cluster/member.py")


def cache_key(convert_args: Sequence[str], schema: str) -> str:
    """Returns a SHA-256 (hexadecimal) of a source's files, its schema, and the code that converts; arguments as of the step."""
    with parsed_options(convert_args, schema, "-") as options:
        content = source_digest(options.dataset, options.source, options.schema)
    return hashlib.sha256(
        (content + code_digest(pathlib.Path(__file__).parents[2])).encode()
    ).hexdigest()


def code_digest(root: pathlib.Path) -> str:
    """Returns a SHA-256 (hexadecimal) of the names and contents of all files of `CODE` below `root`."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in CODE for path in root.glob(pattern)):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def dataset_dir(runs_dir: pathlib.Path, dataset: str, *key: object) -> pathlib.Path:
    """Returns the directory of a dataset by its `cache_key` and all else that decides its content."""
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    return runs_dir / STORE / f"{re.sub('[:/]', '-', dataset)}-{digest[:16]}"
