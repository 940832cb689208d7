from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.convert.sources.examples import parser
from trainer.base.errors import UserError

RANDOM = np.random.default_rng(0)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=1, max_size=6),
    packed=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([31, 25, 15, 9])), min_size=1, max_size=3),
    cut=st.integers(1, 30),
)
def test_a_file_is_read_however_it_is_packed_and_refused_if_it_is_cut(tmp_path, write_records, sizes, packed, cut):
    payloads = [{"x": RANDOM.integers(0, 4, size, np.uint8).tobytes()} for size in sizes]
    whole = write_records(tmp_path / "x", payloads).read_bytes()
    ends = np.linspace(0, len(whole), len(packed) + 1).astype(int).tolist()
    data = b""
    for (level, bits), start, end in zip(packed, ends, ends[1:], strict=False):
        packer = zlib.compressobj(level, wbits=bits)
        data += packer.compress(whole[start:end]) + packer.flush()
    path = tmp_path / "y"
    path.write_bytes(data)
    assert [record.value("x", "string") for record in parser.records("x", [str(path)])] == [p["x"] for p in payloads]
    path.write_bytes(data[:-cut])
    with pytest.raises(UserError, match=f"^{path}: (damaged|no records)"):
        list(parser.records("x", [str(path)]))
