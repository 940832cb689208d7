"""A set of 64-bit hashes in ten bits each, which takes one other hash in a hundred for one of its own.

    bits = bloom_filter(len(hashes), [hashes])
    holds(bits, hashes).all()      # True

(Bloom 1970, doi:10.1145/362686.362692; the places of a hash are those of Kirsch and Mitzenmacher 2008,
doi:10.1002/rsa.20208.) The bits are uint8, eight places each, the lowest bit first.
"""

from collections.abc import Iterable, Iterator

import numpy as np

_BITS, _PLACES = 10, 7  # of a hash: taken for one that is there are (1 - e**(-7/10))**7, 0.8 % of others
_AT_ONCE = 1 << 16


def bloom_filter(count: int, hashes: Iterable[np.ndarray]) -> np.ndarray:
    """The set of about so many hashes, which come in arrays, uint64 [N] each; it takes no more memory than itself."""
    bits = np.zeros(max(128, -(-_BITS * count // 8)), np.uint8)
    for part in hashes:
        for start in range(0, len(part), _AT_ONCE):
            for place in _places(part[start : start + _AT_ONCE], len(bits)):
                np.bitwise_or.at(bits, place >> np.uint64(3), _bit(place))
    return bits


def holds(bits: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Which of the hashes [N] are in the set, bool [N]: of those that are none is left out."""
    held = np.ones(len(hashes), bool)
    for place in _places(hashes, len(bits)):
        held &= (bits[place >> np.uint64(3)] & _bit(place)) > 0
    return held


def _places(hashes: np.ndarray, num_bytes: int) -> Iterator[np.ndarray]:
    """The places of each hash, one of all of them [N] at a time."""
    size = np.uint64(8 * num_bytes)
    place, step = hashes % size, (hashes >> np.uint64(32)) % size
    for _ in range(_PLACES):
        yield place
        place = (place + step) % size


def _bit(place: np.ndarray) -> np.ndarray:
    return np.uint8(1) << (place & np.uint64(7)).astype(np.uint8)
