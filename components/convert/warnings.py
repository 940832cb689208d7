"""Warnings about a dataset that was just converted: what a newcomer would find out after hours of training.

print_warnings(manifest, "data/flowers")
"""

import itertools
from collections.abc import Iterator

import numpy as np

from common.manifest import CLASSIFICATION, REGRESSION, Manifest
from common.storage.files import read_bytes

_MANY_MISSING = 0.5  # Share of examples that a default fills.
MOST_COMPARED = 5_000_000  # Records, about, whose hashes are compared.


def print_warnings(manifest: Manifest, directory: str) -> None:
    """Prints a line for each; the dataset's files lie in the directory."""
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
        if summary.missing == train.examples:  # Its header or key is perhaps misspelt.
            yield f"column {name}: the source has no value of it in any training example; all have the default"
        elif summary.missing > _MANY_MISSING * train.examples:
            yield f"column {name}: a default fills {summary.missing / train.examples:.0%} of the training examples"
    if manifest.task == REGRESSION:
        for target in manifest.targets:
            summary = (train.summaries or {})[f"{manifest.label}.{target}"]
            if summary.min == summary.max:
                yield f"target {target} is {summary.min} in all training examples; there is nothing to learn"


def _duplicates(manifest: Manifest, directory: str) -> Iterator[str]:
    """Yields how many records of a split, but for the label, are in another one too; of many, by those with some hashes."""
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
            about = "about " if every > 1 else ""
            yield f"{about}{common:,} different records are in both {one} and {other}; scores on {other} are too good"


def _read_hashes(path: str, every: int) -> np.ndarray:
    hashes = np.frombuffer(read_bytes(path) or b"", "<u8")
    return hashes[hashes % every == 0]
