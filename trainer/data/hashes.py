"""What tells the records of a dataset from others, in whatever dataset these are: a file of 64-bit hashes beside each shard.

for hashes in content_hashes(manifest, "data/mnist", "train"):
    hashes     # uint64 [records of one file]

Imports no TensorFlow.
"""

from collections.abc import Iterator

import numpy as np
from etils import epath

from trainer.base.manifest import Manifest
from trainer.data.reader.shards import small_file


def content_hashes(manifest: Manifest, data_dir: str, split: str) -> Iterator[np.ndarray]:
    """The hashes of a split's records in their order, file by file; records that are equal but for the label have one hash.

    Raises:
      UserError: Naming the first file that is missing or not what the manifest says.
    """
    for shard in manifest.split(split).shards:
        yield np.frombuffer(small_file(epath.Path(data_dir) / shard.hashes, shard.hashes_crc32c), "<u8")
