"""Content hashes: 64 bits of a record's values, without the label, the same in every conversion.

    content_hashes(N, {"fare": fares, "company": companies})     # uint64 [N]

The values are hashed, not the bytes of a record, because these depend on other records: integers
are as wide as the largest one needs. The label is left out, because an image with a corrected label
is still the same image.
"""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from components.convert.records import Column, checksums

# Strings are short if they have fewer bytes on average, each with its offset of 8 bytes.
_SHORT_BYTES = 72


def content_hashes(count: int, columns: Mapping[str, Column]) -> np.ndarray:
    """Returns a hash of the values of each record, uint64 [count].

    The values are a sequence of words of at most 32 bits. A hash is the sum of the words, each
    multiplied by a constant of its position, modulo 2**64, which is then mixed. Two different
    records have equal hashes with a probability of at most 2**-32 (multilinear hashing: Lemire and
    Kaser 2014, doi:10.1093/comjnl/bxt070). A string is represented by its CRC-32C and its length.

    Args:
      count: Number of records.
      columns: Values by name: arrays [count, ...] or Arrow arrays of strings. In an array of uint8,
        each row has to be contiguous.
    """
    words = [part for name in sorted(columns) for part in _words(columns[name])]
    hashes, place = np.zeros(count, np.uint64), 0
    for part in words:
        # `einsum` widens some thousands of words at a time to 64 bits, so they stay in the cache.
        hashes += np.einsum(
            "ij,j->i", part, _factors(place, part.shape[1]), dtype=np.uint64, casting="unsafe"
        )
        place += part.shape[1]
    return splitmix64(0, hashes)


def string_digests(strings: Sequence[bytes]) -> np.ndarray:
    """Returns the masked CRC-32C and the length of each of N strings, uint8 [N, 8].

    Each of the two numbers is a little-endian uint32.
    """
    count = len(strings)
    return np.stack(
        [checksums(strings, count), np.fromiter(map(len, strings), "<u4", count)], axis=1
    ).view(np.uint8)


def _words(column: Column) -> Iterator[np.ndarray]:
    """Yields arrays, uint32 or uint8 [N, words], that side by side hold a column's N values.

    A string is held as its checksum and its length.
    """
    count = len(column)
    if not isinstance(column, np.ndarray):
        # Short strings are often categories, of which each different one is hashed once. For long
        # strings, a checksum is cheaper than the search for equal ones.
        if column.nbytes < _SHORT_BYTES * count:
            encoded = column.dictionary_encode()
            column = string_digests(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
        else:
            column = string_digests(column.to_pylist())
    # The width is computed, because `reshape(0, -1)` fails for a column without rows.
    if (column := column.reshape(count, math.prod(column.shape[1:]))).dtype == np.uint8:
        words_end = column.shape[1] // 4 * 4
        yield column[:, :words_end].view("<u4")
        if words_end < column.shape[1]:
            yield column[:, words_end:]
    else:
        yield column.astype("<f4" if column.dtype.kind == "f" else "<i8").view("<u4")


# Every block of a dataset needs the same constants.
@functools.lru_cache(maxsize=64)
def _factors(first: int, count: int) -> np.ndarray:
    return splitmix64(0, np.arange(first, first + count))


def splitmix64(seed: int, which: np.ndarray) -> np.ndarray:
    """Returns outputs of the SplitMix64 generator, uint64 [...].

    The generator is that of https://prng.di.unimi.it/splitmix64.c.

    Args:
      seed: Seed of the generator, from 0 to 2**64 - 1.
      which: Positions of the outputs in the generator's sequence, counted from 0, integers [...].
    """
    x = np.uint64(seed) + (which.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
