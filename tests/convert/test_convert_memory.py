"""A source larger than memory converts in a fixed budget. The limit is the kernel's, on what a process may write to."""

import functools
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


def run(limit_mb: int, *flags: object) -> None:
    command = [sys.executable, "-m", "components.convert", *map(str, flags)]
    limit = (limit_mb * MB, limit_mb * MB)
    subprocess.run(
        command,
        cwd=ROOT,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, limit),
    )


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> pathlib.Path:
    """Folder of 400 MB of images, raw and packed."""
    root, count = tmp_path_factory.mktemp("images"), 400 * MB // 784
    pixels = np.random.default_rng(0).integers(0, 256, (5000, 784), np.uint8)
    for kind, open_file in (
        ("raw", open),
        ("packed", functools.partial(gzip.open, compresslevel=1)),
    ):
        (root / kind).mkdir()
        with open_file(root / kind / "train-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(count))
        with open_file(root / kind / "train-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28))
            for start in range(0, count, len(pixels)):
                file.write((pixels[: count - start] + np.uint8(start % 251)).tobytes())
    return root


def test_images_larger_than_memory(tmp_path, images):
    checksums = set()
    # 100 MB are for the interpreter and its libraries; the last one has all memory of the machine.
    for limit_mb, kind, processes in (
        (200, "raw", 1),
        (200, "packed", 2),
        (300, "packed", 1),
        (16_000, "raw", 2),
    ):
        out = tmp_path / f"{limit_mb} {kind} {processes}"
        flags = (
            "--dataset",
            "idx",
            "--source",
            images / kind,
            "--processes",
            processes,
            "--shards",
            3,
        )
        run(limit_mb, *flags, "--output", out)
        manifest = Manifest.load(out)
        output.verify(str(out), manifest)
        checksums.add(str([split.checksums for split in manifest.splits.values()]))
    assert len(checksums) == 1


def test_table_larger_than_memory(tmp_path):
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
def test_texts_take_bounded_memory(tmp_path, words):
    rows = 20 * MB // (5 * words + 5)
    lines = (f"{'kind ' * (words - 1)}{i % 4096:07d},{i % 2}\n" for i in range(rows))
    (tmp_path / "rows.csv").write_text("text,class\n" + "".join(lines))
    (tmp_path / "schema.yaml").write_text(
        "{name: t, origin: t, columns: {text: {type: string}, class: {type: int}}, "
        "label: {column: class, classes: [a, b]}, deep: [{column: text, vocabulary: 100}]}"
    )
    flags = (
        "--dataset",
        "csv",
        "--source",
        tmp_path / "rows.csv",
        "--schema",
        tmp_path / "schema.yaml",
    )
    command = [
        sys.executable,
        "-m",
        "components.convert",
        *map(str, flags),
        "--output",
        str(tmp_path / "out"),
    ]
    # A child's maximum begins with its parent's, so the parent is a small process.
    measure = (
        "import resource as r, subprocess as s, sys; s.run(sys.argv[1:], check=True, "
        "stdout=s.DEVNULL)"
    )
    measure += "; print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss)"
    used = subprocess.run(
        [sys.executable, "-c", measure, *command], cwd=ROOT, check=True, capture_output=True
    )
    assert int(used.stdout) * 1024 < 280 * MB  # 80 MB are for the interpreter and its libraries
