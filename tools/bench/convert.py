"""Writing TFRecord against the usual ways, a loop over `tf.train.Example` above all.

Images are CIFAR-10's; rows are the taxi trips, twenty times. Both must be at hand in
../shared/data.
"""

import contextlib
import functools
import io
import os
import shutil
import tarfile

import numpy as np
import yaml

from common.manifest import Manifest
from components.convert.convert import convert
from components.convert.options import Options
from tests.programs import run_python
from tests.root import ROOT
from tools.bench import data, usual
from tools.bench.race import Child, Contestants
from trainer.data import records

USUAL_ROWS = 15_000
TAXI = ROOT / "components/convert/schemas/taxi.yaml"


def images():
    """The training images: our writer, and the whole command, which reads 10,000 more as well."""
    root = data.scratch()
    with tarfile.open(data.CIFAR10) as archive:
        archive.extractall(root, filter="data")
    saved = _saved(*_images(), root)
    return {
        "our writer": Child("tools.bench.write", "ours", *saved),
        "whole command, 60,000 records": _command("cifar10", root, root, 60_000),
        "tf.train.Example loop": Child("tools.bench.write", "usual", *saved),
    }


def builder():
    """The training images: our writer against TensorFlow Datasets."""
    import tensorflow_datasets as tfds

    root, (pixels, labels) = data.scratch(), _images()
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=pixels.shape[1:]),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
    )

    def theirs():
        shutil.rmtree(root / "tfds", ignore_errors=True)
        pairs = zip(pixels, labels, strict=True)
        split = {"train": enumerate({"image": image, "label": label} for image, label in pairs)}
        store = tfds.dataset_builders.store_as_tfds_dataset
        store("made", "1.0.0", features, split, data_dir=root / "tfds")
        return len(labels)

    tfds.disable_progress_bar()
    ours = Child("tools.bench.write", "ours", *_saved(pixels, labels, root))
    return {"our writer": ours, "TensorFlow Datasets' builder": theirs}


def rows(reader, times):
    """The taxi trips, so many times in one CSV file, against a loop over what a library reads.

    The loop takes fewer rows. The conversion is timed without its start too.
    """
    root = data.scratch()
    header, *lines = data.TAXI.read_text().splitlines(keepends=True)
    trips, count = root / "trips.csv", times * len(lines)
    trips.write_text("".join([header, *lines * times]))

    def ours():
        shutil.rmtree(root / "out", ignore_errors=True)
        with contextlib.redirect_stdout(io.StringIO()):
            convert(Options(dataset="taxi", source=str(trips), output=str(root / "out")))
        return count

    columns = yaml.safe_load(TAXI.read_text())["columns"]
    kinds = {name: column["type"] for name, column in columns.items()}
    return {
        "our conversion": ours,
        f"whole command, {count:,} rows": _command("taxi", trips, root, count),
        f"{reader} and Example loop": usual.rows(reader, trips, kinds, root, USUAL_ROWS),
    }


def _command(dataset, source, root, count):
    output = root / "converted"
    flags = ["--dataset", dataset, "--source", str(source), "--output", str(output)]

    def command():
        shutil.rmtree(output, ignore_errors=True)
        run_python("-m", "components.convert", *flags)
        return count

    return command


def _images():
    """The training images, uint8 [N, 32, 32, 3], and their labels [N]."""
    directory = data.dataset("cifar10")
    columns = records.load(Manifest.load(directory), directory, "train")
    return columns["image"].numpy(), columns["label"].numpy().astype(np.int64)


def _saved(pixels, labels, root):
    """Arguments of the contestants that write them."""
    images, classes = os.fspath(root / "images.npy"), os.fspath(root / "labels.npy")
    np.save(images, pixels)
    np.save(classes, labels)
    return images, classes, os.fspath(root)


RACES: dict[str, Contestants] = {
    "convert": images,
    "convert-tfds": builder,
    "convert-rows": functools.partial(rows, "csv", 20),
    "convert-pandas": functools.partial(rows, "pandas", 52),
    "convert-duckdb": functools.partial(rows, "duckdb", 52),
}
