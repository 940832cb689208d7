"""TFRecord files: every record once, at a place that never changes, whoever reads it."""

import gzip

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.storage.files import stat_file
from components.convert.sources.examples import record_files

RANDOM = np.random.default_rng(0)
ANY = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def payloads(size: int) -> bytes:
    """So many bytes, many of them zeros, which begin what could be lengths."""
    return (RANDOM.integers(0, 256, size, np.uint8) * (RANDOM.random(size) < 0.2)).astype(np.uint8).tobytes()


def read(paths: list[str]) -> tuple[list[tuple[int, int, bytes]], list]:
    """Where each record starts, its position and payload, and the pieces."""
    cut = record_files.cut({"train": [*map(stat_file, paths)]})
    return [record for piece in cut.pieces for record in record_files.payloads(cut, piece)], list(cut.pieces)


@ANY
@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
    levels=st.lists(st.integers(0, 9), max_size=3),
    cut=st.integers(1, 15),
)
def test_a_file_is_read_packed_or_not_and_refused_if_it_is_cut(tmp_path, write_records, sizes, levels, cut):
    made = [payloads(size) for size in sizes]
    data = write_records(tmp_path / "x", made).read_bytes()
    ends = np.linspace(0, len(data), len(levels) + 1).astype(int).tolist()
    if levels:
        parts = zip(levels, ends, ends[1:], strict=False)
        data = b"".join(gzip.compress(data[start:end], level) for level, start, end in parts)
    path = tmp_path / "y"
    path.write_bytes(data)
    found, (piece, again) = read([str(path), str(path)])
    half = len(found) // 2
    positions = [position for _, position, _ in found]
    assert [payload for _, _, payload in found] == made * 2 and positions == sorted(set(positions))
    assert positions[half - 1] < piece.extent == again.position <= positions[half]
    path.write_bytes(data[:-cut])
    with pytest.raises(UserError, match=f"^{path}: damaged"):
        read([str(path)])


@pytest.mark.parametrize("end", ["", ".gz"])
def test_records_are_spread_evenly_over_the_positions(tmp_path, write_records, end):
    path = write_records(tmp_path / f"x{end}", [RANDOM.integers(0, 4, 100, np.uint8).tobytes() for _ in range(8000)])
    found, pieces = read([str(path)])
    shares = np.bincount([position * 8 // pieces[-1].extent for _, position, _ in found])
    assert shares.min() > 900 and len(shares) == 8


def test_damage_is_named(tmp_path, write_records):
    path = write_records(tmp_path / "x", [payloads(100) for _ in range(50)])
    data = path.read_bytes()
    for at in range(0, len(data), 97):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(UserError, match=f"{path}: damaged.*record at byte {at // 116 * 116:,}$"):
            read([str(path)])
