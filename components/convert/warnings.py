"""Warnings about a new dataset, which a newcomer would otherwise find out after hours of training.

    print_warnings(manifest, "data/flowers")

They are about empty splits, classes without examples, values that are missing or constant, and
records that two splits share.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from common.manifest import CLASSIFICATION, REGRESSION, Manifest
from common.storage.files import read_bytes

_MANY_MISSING = 0.5  # A larger share of examples with a default in a column is worth a warning.
MOST_COMPARED = 5_000_000  # Approximate largest number of records whose hashes are compared.


def print_warnings(manifest: Manifest, directory: str) -> None:
    """Prints a line for each warning about splits, values and records that two splits share.

    A split may be empty, a class absent, the label constant, or a column mostly filled by defaults.

    Args:
      manifest: Manifest of the dataset.
      directory: Directory of the dataset's files, of which the content hashes are read.
    """
    for line in (*_of_splits(manifest), *_of_values(manifest), *_duplicates(manifest, directory)):
        print(f"warning: {line}", flush=True)


def _of_splits(manifest: Manifest) -> Iterator[str]:
    for name, split in manifest.splits.items():
        if not split.examples:
            need = "it cannot be evaluated" if name == "test" else "training cannot be validated"
            yield f"{name}: no examples; {need}"
    counts = manifest.splits["train"].class_histogram
    if manifest.task == CLASSIFICATION:
        if absent := [
            name for name, count in zip(manifest.class_names, counts, strict=True) if not count
        ]:
            yield f"no training example has class {', '.join(map(repr, absent[:5]))}"
        if len(absent) == len(counts) - 1:
            yield "all training examples have one class; there is nothing to learn"


def _of_values(manifest: Manifest) -> Iterator[str]:
    train = manifest.splits["train"]
    for name, summary in (train.summaries or {}).items():
        if summary.missing > _MANY_MISSING * train.examples:
            yield (
                f"column {name}: a default fills {summary.missing / train.examples:.0%} "
                "of the training examples"
            )
    if manifest.task == REGRESSION:
        for target in manifest.targets:
            summary = (train.summaries or {})[f"{manifest.label}.{target}"]
            if summary.min == summary.max:
                yield (
                    f"target {target} is {summary.min} in all training examples; "
                    "there is nothing to learn"
                )


def _duplicates(manifest: Manifest, directory: str) -> Iterator[str]:
    """Yields a warning for each two splits that have records in common, apart from the label.

    Records are compared by their content hashes. Of many records only those with certain hashes are
    compared, and the number of common ones is an estimate.
    """
    every = 1 + sum(split.examples for split in manifest.splits.values()) // MOST_COMPARED
    hashes = {
        name: np.unique(
            np.concatenate(
                [_read_hashes(f"{directory}/{shard.hashes}", every) for shard in split.shards]
            )
        )
        for name, split in manifest.splits.items()
        if split.shards
    }
    for (one, a), (other, b) in itertools.combinations(hashes.items(), 2):
        if common := every * len(np.intersect1d(a, b, assume_unique=True)):
            yield (
                f"{'about ' * (every > 1)}{common:,} different records are in both {one} "
                f"and {other}; scores on {other} are too good"
            )


def _read_hashes(path: str, every: int) -> np.ndarray:
    hashes = np.frombuffer(read_bytes(path) or b"", "<u8")
    return hashes[hashes % every == 0]
