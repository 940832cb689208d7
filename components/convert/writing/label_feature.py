"""The label as a feature of the manifest, by the task."""

from common.manifest import MULTI_LABEL, REGRESSION, Feature

LABEL = "label"


def label_feature(task: str, size: int) -> Feature:
    """The label that says which of so many classes, or that has so many targets."""
    if task == REGRESSION:
        return Feature(name=LABEL, dtype="float32", shape=() if size == 1 else (size,))
    if task == MULTI_LABEL:
        return Feature(name=LABEL, dtype="int64", shape=(size,), value_range=(0.0, 1.0))
    return Feature(name=LABEL, dtype="int64", value_range=(0.0, size - 1.0))
