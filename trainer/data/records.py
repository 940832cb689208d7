"""Records of a split in their own order, for validation and evaluation.

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
    """Yields the examples of a split in batches, as tensors [batch_size, *shape] by feature name.

    Tensors have their feature's dtype, and image files are decoded. The last batch may be shorter.
    One batch is in memory at a time.

    Args:
      manifest: Manifest of the dataset.
      data_dir: Its directory, local or in a bucket.
      split: Name of the split.
      batch_size: Number of examples in a batch.
      start: Index in the split of the first example.
      stop: Index of the example after the last one; None for the end of the split.

    Raises:
      UserError: If the split is empty, a file is missing or not the one in the manifest, or a
        record does not have its checksum.
      ConnectionError: If a store does not answer when files are compared with the manifest.
      tf.errors.OpError: If reading fails otherwise, or an image file cannot be decoded.
    """
    for examples in _examples(manifest, data_dir, split, batch_size, start, stop):
        yield decode_files(parse(examples, manifest), manifest)


def load(manifest: Manifest, data_dir: str, split: str) -> Columns:
    """Returns a whole split as columns [examples, *shape] by feature name.

    Image files are not decoded: their column has their contents, strings [examples].

    Raises:
      UserError: If the split is empty, a file is missing or not the one in the manifest, or a
        record does not have its checksum.
      ConnectionError: If a store does not answer when files are compared with the manifest.
      tf.errors.OpError: If reading fails otherwise.
    """
    (examples,) = _examples(manifest, data_dir, split, manifest.split(split).examples, 0, None)
    return parse(examples, manifest)


def _examples(
    manifest: Manifest, data_dir: str, split: str, batch_size: int, start: int, stop: int | None
) -> Iterator[tf.Tensor]:
    """Yields the serialised Examples `start` to `stop` (exclusive) of a split in batches.

    A batch is strings [batch_size]; the last one may be shorter. None as `stop` is the end.

    Raises:
      UserError: If the split is empty, a file is missing or not the one in the manifest, or a
        record does not have its checksum.
      ConnectionError: If a store does not answer when files are compared with the manifest.
      tf.errors.OpError: If reading fails, and all files have their checksums nevertheless.
    """
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
        # TensorFlow does not say which file is damaged; this raises an error that does.
        verify(manifest, data_dir, split)
        raise
