"""TFRecord files in pieces: every record once, at a place that never changes, whoever reads it."""

import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.convert.sources.examples import record_files
from components.files.listing import of_path
from trainer.base.errors import UserError

RANDOM = np.random.default_rng(0)
ANY = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


def payloads(size: int) -> bytes:
    """So many bytes, many of them zeros, which begin what could be lengths."""
    return (RANDOM.integers(0, 256, size, np.uint8) * (RANDOM.random(size) < 0.2)).astype(np.uint8).tobytes()


def read(paths: list[str], **sizes: int) -> tuple[list[tuple[int, int, bytes]], list]:
    """Where each record starts, its position and payload, and the pieces."""
    cut = record_files.cut({"train": [*map(of_path, paths)]}, **{"pieces": 1, "piece_bytes": 1 << 40, **sizes})
    return [record for piece in cut.pieces for record in record_files.payloads(cut, piece)], list(cut.pieces)


@pytest.mark.cluster
@ANY
@given(
    sizes=st.lists(st.lists(st.integers(0, 2_000), min_size=1, max_size=30), min_size=1, max_size=3),
    pieces=st.integers(1, 20),
    piece_bytes=st.integers(100, 10_000),
)
def test_any_pieces_have_the_same_records_at_the_same_positions(tmp_path, write_records, sizes, pieces, piece_bytes):
    made = [[payloads(size) for size in file] for file in sizes]
    paths = [str(write_records(tmp_path / str(i), file)) for i, file in enumerate(made)]
    whole, _ = read(paths)
    assert [payload for _, _, payload in whole] == [payload for file in made for payload in file]
    found, cut = read(paths, pieces=pieces, piece_bytes=piece_bytes)
    assert found == whole
    extent = cut[-1].position + cut[-1].extent
    # A shard that has the positions of a piece's share has records of one piece of each file only.
    for _, position, _ in found:
        share = position * pieces // extent
        inside = [p for p in cut if p.position <= position < p.position + p.extent]
        assert (len(inside) == 1 and inside[0].position * pieces // extent == share) or inside[0].start == 0


@ANY
@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
    packed=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([31, 25, 15, 9])), min_size=1, max_size=3),
    cut=st.integers(1, 30),
)
def test_a_file_is_read_however_it_is_packed_and_refused_if_it_is_cut(tmp_path, write_records, sizes, packed, cut):
    made = [payloads(size) for size in sizes]
    whole = write_records(tmp_path / "x", made).read_bytes()
    ends = np.linspace(0, len(whole), len(packed) + 1).astype(int).tolist()
    data = b""
    for (level, bits), start, end in zip(packed, ends, ends[1:], strict=False):
        packer = zlib.compressobj(level, wbits=bits)
        data += packer.compress(whole[start:end]) + packer.flush()
    path = tmp_path / "y"
    path.write_bytes(data)
    found, (piece,) = read([str(path)], pieces=5)
    positions = [position for _, position, _ in found]
    assert [payload for _, _, payload in found] == made and positions == sorted(set(positions))
    assert positions[-1] < piece.extent
    path.write_bytes(data[:-cut])
    with pytest.raises(UserError, match=f"^{path}: damaged"):
        read([str(path)])


@pytest.mark.parametrize("end", ["", ".gz", ".zlib"])
def test_records_are_spread_evenly_over_the_positions(tmp_path, write_records, end):
    path = write_records(tmp_path / f"x{end}", [RANDOM.integers(0, 4, 100, np.uint8).tobytes() for _ in range(8000)])
    found, pieces = read([str(path)])
    shares = np.bincount([position * 8 // pieces[-1].extent for _, position, _ in found])
    assert shares.min() > 900 and len(shares) == 8


def test_the_smallest_records_packed_best_have_positions_of_their_own(tmp_path, write_records):
    path = write_records(tmp_path / "x.gz", [b"abcd"] * 100_000)
    found, (piece,) = read([str(path)])
    positions = np.array([position for _, position, _ in found])
    assert len(positions) == 100_000 and np.diff(positions).min() > 0 and positions[-1] < piece.extent


def test_what_looks_like_a_record_inside_of_one_is_found_out(tmp_path, write_records):
    inner = write_records(tmp_path / "inner", [bytes(50)] * 40).read_bytes()
    path = write_records(tmp_path / "x", [inner, b"after"])
    assert [payload for _, _, payload in read([str(path)])[0]] == [inner, b"after"]
    with pytest.raises(UserError, match=f"{path}: cannot be cut at byte .*pack the file with gzip"):
        read([str(path)], pieces=2)
    packed = write_records(tmp_path / "x.gz", [inner, b"after"])
    assert [payload for _, _, payload in read([str(packed)], pieces=2)[0]] == [inner, b"after"]


def test_damage_is_named_in_whatever_piece_it_is(tmp_path, write_records):
    path = write_records(tmp_path / "x", [payloads(100) for _ in range(50)])
    data = path.read_bytes()
    for at in range(0, len(data), 97):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        for pieces in (1, 7):
            with pytest.raises(UserError, match=f"{path}: damaged.*record at byte {at // 116 * 116:,}$"):
                read([str(path)], pieces=pieces)
