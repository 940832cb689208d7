"""Converted datasets that runs on this machine share, each in a directory of its own.

The name of the directory contains a hash of all that decides the result of the conversion.
kfp.local's own cache is only for the resume of one run: it compares the arguments of steps, and
knows nothing of the data and of the project's code.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Sequence

from components.convert.sources.registry import source_digest
from components.convert.step import parsed_options

STORE = ".datasets"  # Folder among the directories of the runs.
# Code that makes a dataset and its page: the step, and all that it imports.
CODE = ("common/**/*", "components/convert/**/*", "trainer/cluster/member.py")


def cache_key(convert_args: Sequence[str], schema: str) -> str:
    """Returns the SHA-256 (hexadecimal) of a source's files, its schema and the converting code.

    Args:
      convert_args: Flags of the step `convert`.
      schema: Text of the schema, or empty.

    Raises:
      UserError: If a flag is wrong, or if the source cannot be read.
      ConnectionError: If the source is in a bucket that does not answer.
    """
    with parsed_options(convert_args, schema, "-") as options:
        content = source_digest(options.dataset, options.source, options.schema)
    return hashlib.sha256(
        (content + code_digest(pathlib.Path(__file__).parents[2])).encode()
    ).hexdigest()


def code_digest(root: pathlib.Path) -> str:
    """Returns the SHA-256 (hexadecimal) over names and contents of the code that converts.

    Args:
      root: Directory of the project, below which `CODE` has patterns of paths.
    """
    digest = hashlib.sha256()
    for path in sorted(path for pattern in CODE for path in root.glob(pattern)):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def dataset_dir(runs_dir: pathlib.Path, dataset: str, *key: object) -> pathlib.Path:
    """Returns the directory of a dataset, `<runs_dir>/.datasets/<dataset>-<16 digits of a hash>`.

    `:` and `/` in the dataset's name become `-`.

    Args:
      runs_dir: Directory of the runs.
      dataset: Name of the dataset, as given to the converter.
      *key: The `cache_key`, and all else that decides the content of the dataset.
    """
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    return runs_dir / STORE / f"{re.sub('[:/]', '-', dataset)}-{digest[:16]}"
