"""Writing TFRecord against the usual ways: a loop over `tf.train.Example`, and the builder of TensorFlow Datasets.

Images are CIFAR-10's; rows are the taxi trips, twenty times. Both must be at hand in ../shared/data.
"""

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
import yaml

from components.convert.convert import convert
from components.convert.options import Options
from tests.bench import data
from tests.bench.race import Child
from trainer.base.manifest import Manifest
from trainer.data import records

Contestants = Mapping[str, Callable[[], float]]

SHAPE = (32, 32, 3)
USUAL_ROWS = 15_000
TAXI = pathlib.Path(__file__).parents[2] / "components/convert/tables/schemas/taxi.yaml"


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
        {"image": tfds.features.Image(shape=SHAPE), "label": tfds.features.ClassLabel(num_classes=10)}
    )

    def theirs() -> float:
        shutil.rmtree(root / "tfds", ignore_errors=True)
        examples = ({"image": image, "label": label} for image, label in zip(pixels, labels, strict=True))
        split = {"train": enumerate(examples)}
        tfds.dataset_builders.store_as_tfds_dataset("made", "1.0.0", features, split, data_dir=root / "tfds")
        return len(labels)

    tfds.disable_progress_bar()
    ours = Child("tests.bench.write", "ours", *_saved(pixels, labels, root))
    return {"our writer": ours, "TensorFlow Datasets' builder": theirs}


def rows() -> Contestants:
    """The taxi's columns from CSV: a conversion, and the command with its start, against a loop that takes fewer rows."""
    root = data.scratch()
    header, *lines = data.TAXI.read_text().splitlines(keepends=True)
    trips = root / "trips.csv"
    trips.write_text("".join([header, *lines * 20]))
    kinds = {name: column["type"] for name, column in yaml.safe_load(TAXI.read_text())["columns"].items()}

    def usual() -> float:
        (root / "usual").unlink(missing_ok=True)
        with open(trips, newline="") as file, tf.io.TFRecordWriter(os.fspath(root / "usual")) as writer:
            for row, _ in zip(csv.DictReader(file), range(USUAL_ROWS), strict=False):
                feature = {name: _feature(kinds[name], text) for name, text in row.items()}
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
        return USUAL_ROWS

    def command() -> float:
        _run("--dataset", "taxi", "--source", trips, output=root / "out")
        return 20 * len(lines)

    def ours() -> float:
        shutil.rmtree(root / "out", ignore_errors=True)
        with contextlib.redirect_stdout(io.StringIO()):
            convert(Options(dataset="taxi", source=str(trips), output=str(root / "out")))
        return 20 * len(lines)

    return {
        "our conversion": ours,
        "whole command, 300,000 rows": command,
        "csv.DictReader and Example loop": usual,
    }


def _images() -> tuple[np.ndarray, np.ndarray]:
    """The training images, uint8 [N, 32, 32, 3], and their labels [N]."""
    directory = data.dataset("cifar10")
    columns = records.resident(Manifest.load(directory), directory, "train")
    return columns["image"].numpy(), columns["label"].numpy().astype(np.int64)


def _saved(pixels: np.ndarray, labels: np.ndarray, root: pathlib.Path) -> tuple[str, str, str]:
    """Arguments of the contestants that write them."""
    images, classes = os.fspath(root / "images.npy"), os.fspath(root / "labels.npy")
    np.save(images, pixels)
    np.save(classes, labels)
    return images, classes, os.fspath(root)


def _run(*flags: object, output: pathlib.Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "components.convert", *map(str, flags), "--output", str(output)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _feature(kind: str, text: str) -> tf.train.Feature:
    if kind == "int":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[int(text or 0)]))
    if kind == "float":
        return tf.train.Feature(float_list=tf.train.FloatList(value=[float(text or 0)]))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
