"""A source larger than memory converts in a fixed budget.

The limit is the kernel's, on what a process may write to.
"""

import gzip
import resource
import subprocess
import sys

import numpy as np
import pytest
from dataset_files import idx_bytes

from common.manifest import Manifest
from components.convert import output
from tests.root import ROOT

TAXI = ROOT.parent / "shared/data/taxi/data.csv"
MB = 10**6

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce the limit")
pytestmark = [pytest.mark.slow, LINUX]


def run(limit_mb, out, *flags):
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


@pytest.mark.parametrize("packed", [False, True])
def test_images_larger_than_memory(tmp_path, packed):
    count = 400 * MB // 784
    pixels = np.random.default_rng(0).integers(0, 256, (count, 28, 28), np.uint8)
    for kind, array in (("labels-idx1", np.zeros(count, np.uint8)), ("images-idx3", pixels)):
        content = gzip.compress(idx_bytes(array), 1) if packed else idx_bytes(array)
        (tmp_path / f"train-{kind}-ubyte").write_bytes(content)
    # 100 MB are for the interpreter and its libraries.
    flags = ("--dataset", "idx", "--source", tmp_path, "--processes", 2, "--shards", 3)
    run(200, tmp_path / "out", *flags)


def test_table_larger_than_memory(tmp_path):
    if not TAXI.is_file():
        pytest.skip("the taxi trips are not in ../shared/data/taxi")
    header, rows = TAXI.read_bytes().rstrip(b"\n").split(b"\n", 1)
    copies = 500 * MB // len(rows)  # whose columns take as much again
    (tmp_path / "trips.csv").write_bytes(b"\n".join([header, *[rows] * copies]))
    # 500 MB are for the interpreter, stacks of threads, and what Arrow sets aside.
    flags = ("--dataset", "taxi", "--source", tmp_path / "trips.csv")
    manifest = run(800, tmp_path / "out", *flags)
    assert sum(split.examples for split in manifest.splits.values()) == 15_002 * copies
