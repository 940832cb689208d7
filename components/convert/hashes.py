"""Content hashes: 64 bits of a record's values, without the label, the same in every conversion.

    content_hashes(N, {"fare": fares, "company": companies})     # uint64 [N]

Values are hashed and not bytes of files, for these depend on the other records: integers are as
wide as the largest needs. The label is left out: an image whose label was put right is the same
image.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from components.convert.records import Column, checksums

_SHORT_BYTES = 72  # Strings, each with its offset of 8 bytes, on average.


def content_hashes(count: int, columns: Mapping[str, Column]) -> np.ndarray:
    """Returns the hash of each of `count` records, uint64 [N], of its values by name, [N, ...] each; of bytes only the rows need be contiguous.

    The sum of its words of at most 32 bits, each times a constant of its place, modulo 2**64, is
    mixed in the end: for two different records it is equal with a chance of at most 2**-32
    (multilinear hashing: Lemire and Kaser 2014, doi:10.1093/comjnl/bxt070). A string counts by its
    CRC-32C and length.
    """
    words = [part for name in sorted(columns) for part in _words(columns[name])]
    hashes, place = np.zeros(count, np.uint64), 0
    for part in words:
        # Made 64 bits wide some thousands at a time, in the cache.
        hashes += np.einsum(
            "ij,j->i", part, _factors(place, part.shape[1]), dtype=np.uint64, casting="unsafe"
        )
        place += part.shape[1]
    return splitmix64(0, hashes)


def string_digests(strings: Sequence[bytes]) -> np.ndarray:
    """Returns the CRC-32C and the length of each of N strings, by which it counts: little-endian, uint8 [N, 8]."""
    count = len(strings)
    return np.stack(
        [checksums(strings, count), np.fromiter(map(len, strings), "<u4", count)], axis=1
    ).view(np.uint8)


def _words(column: Column) -> Iterator[np.ndarray]:
    """Unsigned numbers of at most 32 bits, [N, words], that say all of a column."""
    count = len(column)
    if not isinstance(column, np.ndarray):
        # Categories are many times the same; of long strings a checksum is cheaper than finding
        # that out.
        if column.nbytes < _SHORT_BYTES * count:
            encoded = column.dictionary_encode()
            column = string_digests(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
        else:
            column = string_digests(column.to_pylist())
    if (
        column := column.reshape(count, math.prod(column.shape[1:]))
    ).dtype == np.uint8:  # of no rows, too
        words_end = column.shape[1] // 4 * 4
        yield column[:, :words_end].view("<u4")
        if words_end < column.shape[1]:
            yield column[:, words_end:]
    else:
        yield column.astype("<f4" if column.dtype.kind == "f" else "<i8").view("<u4")


@functools.lru_cache(maxsize=64)
def _factors(first: int, count: int) -> np.ndarray:
    return splitmix64(0, np.arange(first, first + count))


def splitmix64(seed: int, which: np.ndarray) -> np.ndarray:
    """Returns those outputs, counted from 0, of the SplitMix64 generator (https://prng.di.unimi.it/splitmix64.c), uint64."""
    x = np.uint64(seed) + (which.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
