"""How a TFRecord file frames its records.

A record is the payload's length (8 bytes), the masked CRC-32C of these, the payload, the masked CRC-32C of the payload, all
little-endian (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).
"""

from collections.abc import Iterable

import google_crc32c
import numpy as np

HEADER_BYTES, FOOTER_BYTES = 12, 4  # length and its checksum; the payload's checksum


def checksums(pieces: Iterable[bytes | np.ndarray], count: int) -> np.ndarray:
    """The masked CRC-32C of each of `count` pieces of contiguous bytes, little-endian uint32 [count]."""
    plain = np.fromiter(map(google_crc32c.value, pieces), np.uint32, count)
    rotated = (plain >> np.uint32(15)) | (plain << np.uint32(17))
    return (rotated + np.uint32(0xA282EAD8)).astype("<u4")
