"""Protocol buffers as bytes, without their library (https://protobuf.dev/programming-guides/encoding)."""

import numpy as np


def varint_bytes(largest: int) -> int:
    """Bytes that a varint needs for every integer from 0 to `largest`."""
    return max(1, -(-largest.bit_length() // 7))


def varints(values: np.ndarray, num_bytes: int) -> np.ndarray:
    """Integers [...] as varints of one width, uint8 [..., num_bytes]: leading zero groups fill the short ones.

    A negative integer is its two's complement of 64 bits and needs 10 bytes.

    Raises:
      ValueError: If an integer needs more bytes.
    """
    groups = values.astype(np.uint64)[..., np.newaxis] >> np.arange(0, 7 * num_bytes, 7, dtype=np.uint64)
    if (groups[..., -1] > 127).any():
        raise ValueError(f"{values.max()} or {values.min()} does not fit into a varint of {num_bytes} bytes")
    groups = (groups & np.uint64(127)).astype(np.uint8)
    groups[..., :-1] |= 128
    return groups


def nested(tag: bytes, content: bytes) -> bytes:
    """A length-delimited field."""
    size = len(content)
    return tag + varints(np.array([size]), varint_bytes(size)).tobytes() + content
