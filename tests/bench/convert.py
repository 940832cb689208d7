"""Writing TFRecord against the usual ways: a loop over `tf.train.Example`, and the builder of TensorFlow Datasets.

Images are CIFAR-10's if they are at hand, else random ones of that number and size; rows are like those of the taxi trips.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from components.convert.convert import convert
from components.convert.options import Options
from components.convert.sources.cifar import CIFAR10
from tests.bench.race import Child
from tests.bench.scratch import scratch

Contestants = Mapping[str, Callable[[], float]]

EXAMPLES, TESTS, SHAPE = 50_000, 10_000, (32, 32, 3)
SOURCE = pathlib.Path(__file__).parents[2] / "../shared/data/cifar10/cifar-10-batches-bin.tar.xz"
ROWS, USUAL_ROWS = 300_000, 15_000

random = np.random.default_rng(0)


def images() -> Contestants:
    """The training images: our writer, and the whole command, which also reads them and 10,000 more for tests."""
    root = scratch()

    def command() -> float:
        _run("--dataset", "cifar10", "--source", root, output=root / "out")
        return EXAMPLES + TESTS

    saved = _saved(*_images(root), root)
    return {
        "our writer": Child("tests.bench.write", *saved),
        "whole command, 60,000 records": command,
        "tf.train.Example loop": Child("tests.bench.example_loop", *saved),
    }


def builder() -> Contestants:
    """The training images: our writer against TensorFlow Datasets."""
    import tensorflow_datasets as tfds

    root = scratch()
    pixels, labels = _images(root)

    class Made(tfds.core.GeneratorBasedBuilder):
        """Images as the set `cifar10` there has them."""

        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = root

        def _info(self):
            features = {"image": tfds.features.Image(shape=SHAPE), "label": tfds.features.ClassLabel(num_classes=10)}
            return self.dataset_info_from_configs(features=tfds.features.FeaturesDict(features))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(EXAMPLES):
                yield i, {"image": pixels[i], "label": labels[i]}

    def theirs() -> float:
        shutil.rmtree(root / "tfds", ignore_errors=True)
        Made(data_dir=root / "tfds").download_and_prepare()
        return EXAMPLES

    tfds.disable_progress_bar()
    ours = Child("tests.bench.write", *_saved(pixels, labels, root))
    return {"our writer": ours, "TensorFlow Datasets' builder": theirs}


def rows() -> Contestants:
    """The taxi's columns from CSV: a conversion, and the command with its start, against a loop that takes fewer rows."""
    root = scratch()
    with open(root / "trips.csv", "w", newline="") as file:
        file.write(_trips())

    def usual() -> float:
        (root / "usual").unlink(missing_ok=True)
        with open(root / "trips.csv", newline="") as file, tf.io.TFRecordWriter(os.fspath(root / "usual")) as writer:
            for row, _ in zip(csv.DictReader(file), range(USUAL_ROWS), strict=False):
                feature = {name: _feature(name, text) for name, text in row.items()}
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        return USUAL_ROWS

    def command() -> float:
        _run("--dataset", "taxi", "--source", root / "trips.csv", output=root / "out")
        return ROWS

    def ours() -> float:
        shutil.rmtree(root / "out", ignore_errors=True)
        with contextlib.redirect_stdout(io.StringIO()):
            convert(Options(dataset="taxi", source=str(root / "trips.csv"), output=str(root / "out")))
        return ROWS

    return {
        "our conversion": ours,
        "whole command, 300,000 rows": command,
        "csv.DictReader and Example loop": usual,
    }


def _images(root: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Puts the original files into a directory; returns the training images, uint8 [N, 32, 32, 3], and labels [N]."""
    if SOURCE.exists():
        with tarfile.open(SOURCE) as archive:
            for member in archive:
                if member.name.endswith(".bin"):
                    (root / os.path.basename(member.name)).write_bytes(archive.extractfile(member).read())
    else:
        for names, count in ((CIFAR10.files_of["train"], EXAMPLES // 5), (CIFAR10.files_of["test"], TESTS)):
            for name in names:
                records = random.integers(0, 256, (count, 3073), np.uint8)
                records[:, 0] %= 10
                records.tofile(root / name)
    records = np.concatenate([np.fromfile(root / name, np.uint8) for name in CIFAR10.files_of["train"]]).reshape(
        -1, 3073
    )
    pixels = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), records[:, 0].astype(np.int64)


def _saved(pixels: np.ndarray, labels: np.ndarray, root: pathlib.Path) -> tuple[str, str, str]:
    """Arguments of the contestant that writes them."""
    images, classes = os.fspath(root / "images.npy"), os.fspath(root / "labels.npy")
    np.save(images, pixels)
    np.save(classes, labels)
    return images, classes, os.fspath(root)


def _run(*flags: object, output: pathlib.Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "components.convert", *map(str, flags), "--output", str(output)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


_INTEGERS = {"trip_seconds": 4000, "trip_start_timestamp": 1_500_000_000, "trip_start_month": 12, "trip_start_day": 7}
_INTEGERS |= {"trip_start_hour": 24, "pickup_community_area": 77, "dropoff_community_area": 77}
_INTEGERS |= {"pickup_census_tract": 17_031_980_100, "dropoff_census_tract": 17_031_980_100}
_FLOATS = {"fare": 60, "tips": 9, "trip_miles": 20}
_FLOATS |= {f"{end}_{axis}": 90 for end in ("pickup", "dropoff") for axis in ("latitude", "longitude")}
_TEXTS = {
    "payment_type": ("Cash", "Credit Card", "No Charge"),
    "company": ("", "Taxi Affiliation Services", "Dispatch Taxi Affiliation", "Blue Ribbon Taxi Association Inc."),
}


def _trips() -> str:
    """Rows in dollars, with what is sometimes missing in the real ones."""
    columns = {name: random.integers(0, most, ROWS).astype(str) for name, most in _INTEGERS.items()}
    columns |= {name: random.integers(0, 100 * most, ROWS) / 100 for name, most in _FLOATS.items()}
    columns |= {name: random.choice(texts, ROWS) for name, texts in _TEXTS.items()}
    for name in ("pickup_census_tract", "dropoff_census_tract", "dropoff_community_area"):
        columns[name] = np.where(random.random(ROWS) < 0.3, "", columns[name])
    lines = map(",".join, zip(*(column.astype(str).tolist() for column in columns.values()), strict=True))
    return "\n".join([",".join(columns), *lines])


def _feature(name: str, text: str) -> tf.train.Feature:
    if name in _INTEGERS:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(text or 0)]))
    if name in _FLOATS:
        return tf.train.Feature(float_list=tf.train.FloatList(value=[float(text or 0)]))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
