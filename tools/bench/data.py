"""Data that contestants read, and places where they write."""

import atexit
import functools
import pathlib
import shutil
import tempfile

from components.convert.convert import convert
from components.convert.options import Options
from tests.root import ROOT

SHARED = ROOT / "../shared/data"
CIFAR10, TAXI = SHARED / "cifar10/cifar-10-batches-bin.tar.xz", SHARED / "taxi/data.csv"
# Without these files, the converter asks TensorFlow Datasets for MNIST and CIFAR-10.
_SOURCES = {"mnist": SHARED / "mnist", "cifar10": CIFAR10, "taxi": TAXI}


def scratch():
    """A new directory that ends with the program."""
    root = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


@functools.cache
def dataset(name):
    """A directory with the converted dataset."""
    source, output = _SOURCES[name], str(scratch() / name)
    given = str(source) if source.exists() else None
    convert(Options(dataset=name, source=given, output=output, validation_fraction=0.0))
    return output
