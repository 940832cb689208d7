"""CRC-32C of bytes that follow each other, from those of the pieces.

    combined(crc32c(a), crc32c(b), len(b)) == crc32c(a + b)

The checksum is linear over the field of two elements: what comes behind shifts that of what is before, by as many powers of
a 32 x 32 matrix as there are bytes (zlib's `crc32_combine` does the same for another polynomial).
"""

import functools
from collections.abc import Sequence

_POLYNOMIAL = 0x82F63B78  # of Castagnoli, the bits reversed


def combined(before: int, behind: int, num_bytes: int) -> int:
    """The checksum of two pieces, the second of which has so many bytes, given those of both."""
    power = 0
    while num_bytes:
        if num_bytes & 1:
            before = _product(_zeros(power), before)
        num_bytes, power = num_bytes >> 1, power + 1
    return before ^ behind


@functools.cache
def _zeros(power: int) -> tuple[int, ...]:
    """The matrix, by columns, that stands for 2**power bytes of zeros."""
    if power:
        return _squared(_zeros(power - 1))
    one_bit = (_POLYNOMIAL, *(1 << i for i in range(31)))
    return _squared(_squared(_squared(one_bit)))


def _squared(matrix: Sequence[int]) -> tuple[int, ...]:
    return tuple(_product(matrix, column) for column in matrix)


def _product(matrix: Sequence[int], vector: int) -> int:
    found = 0
    for column in matrix:
        if vector & 1:
            found ^= column
        vector >>= 1
    return found
