"""A source larger than memory converts in a fixed budget. The limit is the kernel's, on what a process may write to."""

import gzip
import pathlib
import resource
import shutil
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


def run(limit_mb: int, *flags: object) -> None:
    command = [sys.executable, "-m", "components.convert", *map(str, flags)]
    limit = (limit_mb * MB, limit_mb * MB)
    subprocess.run(command, cwd=ROOT, check=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, limit))


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> pathlib.Path:
    """400 MB of images, as they are and compressed."""
    root, count = tmp_path_factory.mktemp("images"), 400 * MB // 784
    block = np.random.default_rng(0).integers(0, 256, (5000, 784), np.uint8)
    headers = {
        "train-images-idx3-ubyte": struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28),
        "train-labels-idx1-ubyte": struct.pack(">4BI", 0, 0, 8, 1, count),
    }
    for kind in ("raw", "packed"):
        (root / kind).mkdir()
    for name, header in headers.items():
        with open(root / "raw" / name, "wb") as file:
            file.write(header)
            for start in range(0, count, len(block)):
                rows = min(len(block), count - start)
                file.write((block[:rows] + np.uint8(start % 251)).tobytes() if "images" in name else bytes(rows))
        with open(root / "raw" / name, "rb") as file, gzip.open(root / "packed" / name, "wb", 1) as packed:
            shutil.copyfileobj(file, packed)
    return root


def test_images_larger_than_memory_make_the_same_bytes(tmp_path, images):
    made = set()
    # 100 MB are for the interpreter and its libraries; the last one has all memory of the machine.
    for limit_mb, kind, processes in ((200, "raw", 1), (200, "packed", 2), (300, "packed", 1), (16_000, "raw", 2)):
        out = tmp_path / f"{limit_mb} {kind} {processes}"
        flags = ("--dataset", "idx", "--source", images / kind, "--processes", processes, "--shards", 3)
        run(limit_mb, *flags, "--output", out)
        manifest = Manifest.load(out)
        output.verify(str(out), manifest)
        made.add(str([split.checksums for split in manifest.splits.values()]))
    assert len(made) == 1


def test_a_table_larger_than_memory(tmp_path):
    if not TAXI.is_file():
        pytest.skip("the taxi trips are not in ../shared/data/taxi")
    header, rows = TAXI.read_bytes().rstrip(b"\n").split(b"\n", 1)
    copies = 250 * MB // len(rows)  # whose columns take as much again
    with open(tmp_path / "trips.csv", "wb") as file:
        file.write(header)
        for _ in range(copies):
            file.write(b"\n" + rows)
    # 250 MB are for the interpreter and Arrow, which sets more aside than it uses.
    run(450, "--dataset", "taxi", "--source", tmp_path / "trips.csv", "--output", tmp_path / "out")
    manifest = Manifest.load(tmp_path / "out")
    assert sum(split.examples for split in manifest.splits.values()) == 15_002 * copies


@pytest.mark.parametrize("words", [1, 300])
def test_a_table_of_texts_takes_a_few_times_its_size(tmp_path, words):
    rows = 20 * MB // (5 * words + 5)
    lines = (f"{'kind ' * (words - 1)}{i % 4096:07d},{i % 2}\n" for i in range(rows))
    (tmp_path / "rows.csv").write_text("text,class\n" + "".join(lines))
    (tmp_path / "schema.yaml").write_text(
        "{name: t, origin: t, columns: {text: {type: string}, class: {type: int}}, "
        "label: {column: class, classes: [a, b]}, deep: [{column: text, vocabulary: 100}]}"
    )
    flags = ("--dataset", "csv", "--source", tmp_path / "rows.csv", "--schema", tmp_path / "schema.yaml")
    command = [sys.executable, "-m", "components.convert", *map(str, flags), "--output", str(tmp_path / "out")]
    # A child's maximum begins with its parent's, so the parent is a small process.
    measure = "import resource as r, subprocess as s, sys; s.run(sys.argv[1:], check=True, stdout=s.DEVNULL)"
    measure += "; print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss)"
    used = subprocess.run([sys.executable, "-c", measure, *command], cwd=ROOT, check=True, capture_output=True)
    assert int(used.stdout) * 1024 < 280 * MB  # 80 MB are for the interpreter and its libraries
