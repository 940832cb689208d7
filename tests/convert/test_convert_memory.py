"""A source larger than memory converts in a fixed budget.

The limit is the kernel's, on what a process may write to.
"""

import gzip
import pathlib
import resource
import struct
import subprocess
import sys

import numpy as np
import pytest

from common.manifest import Manifest
from components.convert import output

ROOT = pathlib.Path(__file__).parents[2]
TAXI = ROOT.parent / "shared" / "data" / "taxi" / "data.csv"
MB = 10**6

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce the limit")
pytestmark = [pytest.mark.slow, LINUX]


def run(limit_mb: int, out: pathlib.Path, *flags: object) -> Manifest:
    limit = (limit_mb * MB, limit_mb * MB)
    subprocess.run(
        [sys.executable, "-m", "components.convert", "--output", out, *map(str, flags)],
        cwd=ROOT,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, limit),
    )
    manifest = Manifest.load(out)
    output.verify(str(out), manifest)
    return manifest


def test_images_larger_than_memory(tmp_path):
    count = 400 * MB // 784
    pixels = np.random.default_rng(0).integers(0, 256, (count, 784), np.uint8).tobytes()
    labels = struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(count)
    images = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28) + pixels
    for kind, level in (("raw", None), ("packed", 1)):
        (tmp_path / kind).mkdir()
        for name, data in (("labels-idx1", labels), ("images-idx3", images)):
            content = gzip.compress(data, level) if level else data
            (tmp_path / kind / f"train-{name}-ubyte").write_bytes(content)
    checksums = set()
    # 100 MB are for the interpreter and its libraries; the last one has all memory of the machine.
    for limit_mb, kind, processes in (
        (200, "raw", 1),
        (200, "packed", 2),
        (300, "packed", 1),
        (16_000, "raw", 2),
    ):
        flags = ("--dataset", "idx", "--source", tmp_path / kind, "--processes", processes)
        out = tmp_path / f"{limit_mb} {kind}"
        splits = run(limit_mb, out, *flags, "--shards", 3).splits.values()
        checksums.add(str([split.checksums for split in splits]))
    assert len(checksums) == 1


def test_table_larger_than_memory(tmp_path):
    if not TAXI.is_file():
        pytest.skip("the taxi trips are not in ../shared/data/taxi")
    header, rows = TAXI.read_bytes().rstrip(b"\n").split(b"\n", 1)
    copies = 250 * MB // len(rows)  # whose columns take as much again
    (tmp_path / "trips.csv").write_bytes(b"\n".join([header, *[rows] * copies]))
    # 250 MB are for the interpreter and Arrow, which sets more aside than it uses.
    flags = ("--dataset", "taxi", "--source", tmp_path / "trips.csv")
    manifest = run(450, tmp_path / "out", *flags)
    assert sum(split.examples for split in manifest.splits.values()) == 15_002 * copies
