"""The task of a dataset: what its label is decides, unless a model's module says more."""

from common.manifest import CLASSIFICATION, MULTI_LABEL, REGRESSION, Manifest
from trainer.tasks.classification import Classification
from trainer.tasks.multi_label import MultiLabel
from trainer.tasks.regression import Regression
from trainer.tasks.task import Task

_TASKS = {
    CLASSIFICATION: lambda manifest: Classification(manifest.class_names),
    REGRESSION: lambda manifest: Regression(manifest.targets, tuple(std for _, std in manifest.target_spreads)),
    MULTI_LABEL: lambda manifest: MultiLabel(manifest.targets),
}


def task_of(manifest: Manifest) -> Task:
    """The task that a dataset is made for."""
    return _TASKS[manifest.task](manifest)
