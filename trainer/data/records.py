"""Records of a split in their own order, checked as they are read, for validation and evaluation.

for columns in batches(manifest, data_dir, "test", batch_size=512):
    columns["image"]     # [512, height, width, channels]
"""

import os
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from common.manifest import Manifest
from trainer.data.features import Columns, decode_files, parse
from trainer.data.shards import check_files, verify


def batches(
    manifest: Manifest,
    data_dir: str,
    split: str,
    batch_size: int,
    *,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[Columns]:
    """Yields the split, or its records `start` to `stop`, batch by batch in little memory; image files are decoded.

    By feature name, [batch_size, *shape] in the feature's dtype; the last batch may be shorter.

    Raises:
      UserError: If a file is missing or is not what the manifest lists, or a record does not have
        its checksum.
    """
    for examples in _examples(manifest, data_dir, split, batch_size, start, stop):
        yield decode_files(parse(examples, manifest), manifest)


def load(manifest: Manifest, data_dir: str, split: str) -> Columns:
    """Returns the whole split, [examples, *shape] by feature name; of image files their contents, strings [examples]."""
    (examples,) = _examples(manifest, data_dir, split, manifest.split(split).examples, 0, None)
    return parse(examples, manifest)


def _examples(
    manifest: Manifest, data_dir: str, split: str, batch_size: int, start: int, stop: int | None
) -> Iterator[tf.Tensor]:
    """Yields serialised Examples in batches, strings [batch_size]."""
    shards = manifest.split(split).shards
    starts = np.cumsum([0, *(shard.examples for shard in shards)])
    stop = int(starts[-1]) if stop is None else stop
    first = int(np.searchsorted(starts, start, side="right")) - 1
    shards = shards[first : int(np.searchsorted(starts, stop))]
    check_files(data_dir, shards)
    files = tf.data.TFRecordDataset([os.path.join(data_dir, shard.file) for shard in shards])
    try:
        yield from files.skip(start - int(starts[first])).take(stop - start).batch(batch_size)
    except tf.errors.OpError:
        verify(manifest, data_dir, split)  # names the file; TensorFlow does not
        raise
