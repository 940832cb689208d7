"""A contestant: our writer, all images in eight shards, on all cores as the command does it.

`python -m tests.bench.write IMAGES.npy LABELS.npy DIRECTORY`
"""

from __future__ import annotations

import math
import pathlib
import sys

import numpy as np

from components.convert import tfrecord, workers
from tests.bench.serve import serve
from trainer.machine import usable_cores


def main(images: str, labels: str, directory: str) -> None:
    """Writes the same files from lap to lap."""
    columns, root = {"image": np.load(images), "label": np.load(labels)}, pathlib.Path(directory)
    pixels = math.prod(columns["image"].shape[1:])
    image = tfrecord.Field(name="image", kind="bytes", num_bytes=pixels)
    layout = tfrecord.Layout([image, tfrecord.Field(name="label", kind="int64", num_bytes=1)])

    def write(rows: np.ndarray, advance: workers.Advance) -> int:
        return tfrecord.write(root / f"{rows[0]}.tfrecord", layout, columns, rows=[rows]).examples

    def lap() -> float:
        shards = np.array_split(np.arange(len(columns["label"])), 8)
        return sum(n for _, n in workers.run(write, shards, processes=usable_cores(), advance=lambda more: None))

    serve(lap)


if __name__ == "__main__":
    main(*sys.argv[1:])
