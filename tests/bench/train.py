"""Training on one device: our step loop through our reader against Keras `fit`, and against PyTorch, one thread each.

PyTorch is none of the project's dependencies. The races against it want a Python that has it:
TORCH_PYTHON=PATH.
"""

import functools
import os
from collections.abc import Callable, Mapping

import numpy as np

from common.manifest import Manifest
from tests.bench import data
from tests.bench.race import Child
from trainer.data import records

_FROZEN, _THAWED = "tests.bench.tuned:frozen", "tests.bench.tuned:thawed"
_STEPS = {"cnn": 150, "resnet": 10, "wide_deep": 1500, _FROZEN: 40, _THAWED: 20}


def _child(kind: str, model: str, dataset: str, *flags: str) -> Child:
    return Child("tests.bench.fit", kind, model, data.dataset(dataset), str(_STEPS[model]), *flags)


def _torch(model: str, dataset: str) -> Child:
    directory = data.dataset(dataset)
    npz = f"{directory}.npz"
    columns = records.load(Manifest.load(directory), directory, "train")
    np.savez(npz, **{name: column.numpy() for name, column in columns.items()})
    return Child(
        "tests.bench.torch_fit", model, npz, str(_STEPS[model]), python=os.environ["TORCH_PYTHON"]
    )


def _keras(model: str, dataset: str, *flags: str) -> Mapping[str, Callable[[], float]]:
    plain = ("--augment", "none", "--weight-decay", "0", *flags)
    return {
        "ours, float32": _child("ours", model, dataset, *plain),
        "ours, bfloat16": _child("ours", model, dataset, *plain, "--precision", "bfloat16"),
        "Keras fit, float32": _child("keras", model, dataset, *plain),
    }


def _one_thread(model: str, dataset: str, *flags: str) -> Mapping[str, Callable[[], float]]:
    if "TORCH_PYTHON" not in os.environ:
        print("  skipped: TORCH_PYTHON names no Python that has PyTorch")
        return {}
    plain = ("--augment", "none", "--weight-decay", "0", "--threads", "1", *flags)
    return {
        "ours, one thread": _child("ours", model, dataset, *plain),
        "PyTorch, one thread": _torch(model, dataset),
    }


def _wide_deep() -> Mapping[str, Callable[[], float]]:
    return {
        "ours": _child("ours", "wide_deep", "taxi"),
        "Keras fit": _child("keras", "wide_deep", "taxi"),
    }


RACES: Mapping[str, Callable[[], Mapping[str, Callable[[], float]]]] = {
    "train-cnn": functools.partial(_keras, "cnn", "mnist"),
    "train-resnet44": functools.partial(_keras, "resnet", "cifar10", "--num-layers", "44"),
    "train-wide-deep": _wide_deep,
    "tune-frozen": functools.partial(_keras, _FROZEN, "cifar10"),
    "tune-thawed": functools.partial(_keras, _THAWED, "cifar10"),
    "torch-cnn": functools.partial(_one_thread, "cnn", "mnist"),
    "torch-resnet44": functools.partial(_one_thread, "resnet", "cifar10", "--num-layers", "44"),
}
