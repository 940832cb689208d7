"""Training on one device: our step loop through our reader, against Keras `fit`."""

import functools

from tools.bench import data
from tools.bench.race import Child, Contestants

_STEPS = {"cnn": "150", "resnet": "10", "wide_deep": "1500"}
_PLAIN = "--augment none --weight-decay 0"
_RESNET44 = f"{_PLAIN} --num-layers 44"


def _child(kind, model, dataset, flags=""):
    words = [kind, model, data.dataset(dataset), _STEPS[model], *flags.split()]
    return Child("tools.bench.fit", *words)


def _keras(model, dataset, flags=_PLAIN):
    return {
        "ours, float32": _child("ours", model, dataset, flags),
        "ours, bfloat16": _child("ours", model, dataset, f"{flags} --precision bfloat16"),
        "Keras fit, float32": _child("keras", model, dataset, flags),
    }


def _wide_deep():
    return {
        "ours": _child("ours", "wide_deep", "taxi"),
        "Keras fit": _child("keras", "wide_deep", "taxi"),
    }


RACES: dict[str, Contestants] = {
    "train-cnn": functools.partial(_keras, "cnn", "mnist"),
    "train-resnet44": functools.partial(_keras, "resnet", "cifar10", _RESNET44),
    "train-wide-deep": _wide_deep,
}
