"""Contestants that write images as TFRecord: ours in eight shards on all cores, or the usual loop.

`python -m tools.bench.write ours|usual IMAGES.npy LABELS.npy DIRECTORY`
"""

import math
import pathlib
import sys

import numpy as np

from common.machine import usable_cores
from components.convert import engine, records, shards
from components.convert.hashes import content_hashes
from tools.bench.serve import serve

_ROUNDS = 5  # a lap: one takes a tenth of a second, of which chance has too large a part


def _ours(images, labels, root):
    columns = {"image": images, "label": labels}
    image = records.Field(name="image", kind="bytes", num_bytes=math.prod(images.shape[1:]))
    layout = records.Layout([image, records.Field(name="label", kind="int64", num_bytes=1)])

    def write(rows):
        name = root / f"{rows[0]}"
        name.with_suffix(shards.RECORDS).unlink(missing_ok=True)
        writer = shards.ShardWriter(str(name), layout)
        writer.append(
            {name: column[rows] for name, column in columns.items()},
            content_hashes(len(rows), {"image": images[rows]}),
        )
        return writer.close().examples

    def lap():
        parts = np.array_split(np.arange(len(labels)), 8)
        rounds = (engine.run(write, parts, processes=usable_cores()) for _ in range(_ROUNDS))
        return sum(examples for results in rounds for _, examples in results)

    return lap


def main(kind, images, labels, directory):
    """Writes new files in every lap, as the command does.

    To overwrite one makes ext4 flush it before it is closed.
    """
    make = _ours
    if kind == "usual":
        from tools.bench import usual  # TensorFlow, whose threads would take our processes away

        make = usual.writer
    serve(make(np.load(images), np.load(labels), pathlib.Path(directory)))


if __name__ == "__main__":
    main(*sys.argv[1:])
