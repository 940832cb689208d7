"""The task of a dataset: what its label is decides, unless a model's module says more."""

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Manifest
from trainer.nn.tasks.base import Task
from trainer.nn.tasks.classification import Classification
from trainer.nn.tasks.multi_label import MultiLabel
from trainer.nn.tasks.regression import Regression

_TASKS = {
    CLASSIFICATION: lambda manifest: Classification(manifest.class_names),
    REGRESSION: lambda manifest: Regression(manifest.targets, tuple(std for _, std in manifest.target_spreads)),
    MULTI_LABEL: lambda manifest: MultiLabel(manifest.targets),
}


def task_of(manifest: Manifest) -> Task:
    """The task that a dataset is made for."""
    return _TASKS[manifest.task](manifest)
