"""All that an evaluation tells of a model beside what decides: figures, parts of the split, the worst records, its cost."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from components.evaluate.details.figures import figures
from components.evaluate.details.footprint import footprint
from components.evaluate.details.parts import parts
from components.evaluate.details.worst import worst
from components.evaluate.score import Answers
from trainer.base.errors import UserError, unknown
from trainer.base.manifest import Manifest
from trainer.data import records
from trainer.nn.tasks.base import Task


def details(
    model_dir: str,
    manifest: Manifest,
    data_dir: str,
    split: str,
    task: Task,
    answered: Answers,
    *,
    by: Sequence[str] = (),
) -> dict[str, Any]:
    """Of what a model has answered for records of a split: `figures`, `parts` by class and by these columns, `worst`, `footprint`.

    Raises:
      UserError: If there is no such column.
    """
    held = {f.name for f in manifest.features if f.name != manifest.label} if manifest.is_table else set()
    if missing := [name for name in by if name not in held]:
        if not held:
            raise UserError(
                f"--slice {missing[0]}: dataset {manifest.name!r} has images and so no columns; leave it out"
            )
        raise unknown("--slice", missing[0], sorted(held))
    answers, labels = answered.answers, answered.labels
    columns = records.resident(manifest, data_dir, split) if by else {}
    chosen = {name: columns[name].numpy()[answered.records] for name in by}
    of_classes = {"class": np.array(manifest.class_names, object)[labels]} if manifest.class_names else {}
    return {
        "figures": figures(manifest.task, manifest.class_names or manifest.targets, answers, labels),
        "parts": parts(task, answers, labels, {**of_classes, **chosen}),
        "worst": worst(manifest, data_dir, split, answered),
        "footprint": footprint(model_dir, manifest, data_dir, split),
    }
