"""Writing TFRecord against the usual ways: a loop over `tf.train.Example`, and the builder of TensorFlow Datasets.

Images are CIFAR-10's; rows are the taxi trips, twenty times. Both must be at hand in
../shared/data.
"""

import contextlib
import importlib.util
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping

import numpy as np
import yaml

from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options
from tests.bench import data, usual
from tests.bench.race import Child
from trainer.data import records

Contestants = Mapping[str, Callable[[], float]]

SHAPE = (32, 32, 3)
USUAL_ROWS = 15_000
TAXI = pathlib.Path(__file__).parents[2] / "components/convert/schemas/taxi.yaml"


def images() -> Contestants:
    """The training images: our writer, and the whole command, which also reads them and 10,000 more for tests."""
    root = data.scratch()
    with tarfile.open(data.CIFAR10) as archive:
        archive.extractall(root, filter="data")

    def command() -> float:
        _run("--dataset", "cifar10", "--source", root, output=root / "out")
        return 60_000

    saved = _saved(*_images(), root)
    return {
        "our writer": Child("tests.bench.write", "ours", *saved),
        "whole command, 60,000 records": command,
        "tf.train.Example loop": Child("tests.bench.write", "usual", *saved),
    }


def builder() -> Contestants:
    """The training images: our writer against TensorFlow Datasets."""
    import tensorflow_datasets as tfds

    root = data.scratch()
    pixels, labels = _images()
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=SHAPE),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
    )

    def theirs() -> float:
        shutil.rmtree(root / "tfds", ignore_errors=True)
        examples = (
            {"image": image, "label": label} for image, label in zip(pixels, labels, strict=True)
        )
        split = {"train": enumerate(examples)}
        tfds.dataset_builders.store_as_tfds_dataset(
            "made", "1.0.0", features, split, data_dir=root / "tfds"
        )
        return len(labels)

    tfds.disable_progress_bar()
    ours = Child("tests.bench.write", "ours", *_saved(pixels, labels, root))
    return {"our writer": ours, "TensorFlow Datasets' builder": theirs}


def rows() -> Contestants:
    """The taxi's columns from CSV: a conversion, and the command with its start, against a loop that takes fewer rows."""
    root, trips, count = _trips(20)

    def ours() -> float:
        shutil.rmtree(root / "out", ignore_errors=True)
        with contextlib.redirect_stdout(io.StringIO()):
            convert(Options(dataset="taxi", source=str(trips), output=str(root / "out")))
        return count

    return {
        "our conversion": ours,
        f"whole command, {count:,} rows": _command(trips, count),
        "csv.DictReader and Example loop": usual.rows("csv", trips, _kinds(), root, USUAL_ROWS),
    }


def peer(reader: str) -> Contestants:
    """The command on 100 MB of CSV against the same loop over what another library reads."""
    if not importlib.util.find_spec(reader):
        print(f"  skipped: {reader} is not installed; {sys.executable} -m pip install {reader}")
        return {}
    root, trips, count = _trips(52)
    return {
        f"whole command, {count:,} rows": _command(trips, count),
        f"{reader} and Example loop": usual.rows(reader, trips, _kinds(), root, USUAL_ROWS),
    }


def _trips(times: int) -> tuple[pathlib.Path, pathlib.Path, int]:
    """A directory, in it the taxi trips so many times in a CSV file, and how many rows this has."""
    root = data.scratch()
    header, *lines = data.TAXI.read_text().splitlines(keepends=True)
    (root / "trips.csv").write_text("".join([header, *lines * times]))
    return root, root / "trips.csv", times * len(lines)


def _kinds() -> dict[str, str]:
    """By name of the taxi's columns, what they are."""
    return {
        name: column["type"] for name, column in yaml.safe_load(TAXI.read_text())["columns"].items()
    }


def _command(trips: pathlib.Path, count: int) -> Callable[[], float]:
    def command() -> float:
        _run("--dataset", "taxi", "--source", trips, output=trips.parent / "out")
        return count

    return command


def _images() -> tuple[np.ndarray, np.ndarray]:
    """The training images, uint8 [N, 32, 32, 3], and their labels [N]."""
    directory = data.dataset("cifar10")
    columns = records.load(Manifest.load(directory), directory, "train")
    return columns["image"].numpy(), columns["label"].numpy().astype(np.int64)


def _saved(pixels: np.ndarray, labels: np.ndarray, root: pathlib.Path) -> tuple[str, str, str]:
    """Arguments of the contestants that write them."""
    images, classes = os.fspath(root / "images.npy"), os.fspath(root / "labels.npy")
    np.save(images, pixels)
    np.save(classes, labels)
    return images, classes, os.fspath(root)


def _run(*flags: object, output: pathlib.Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "components.convert",
        *map(str, flags),
        "--output",
        str(output),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
