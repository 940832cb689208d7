"""What a model costs whoever serves it."""

import statistics
import time

from components.evaluate.score import load_predictor
from trainer.base.manifest import Manifest
from trainer.data import records
from trainer.nn.tasks.base import Task

_WARM_UP, _CALLS = 5, 50


def latency_ms(model_dir: str, manifest: Manifest, data_dir: str, split: str, task: Task) -> float:
    """Milliseconds from a record to its answer, the median of 50 calls of the exported model on this machine."""
    predict = load_predictor(model_dir, manifest, task)
    columns = next(records.batches(manifest, data_dir, split, 1))
    one, taken = {feature.name: columns[feature.name] for feature in manifest.inputs}, []
    for _ in range(_WARM_UP + _CALLS):
        began = time.perf_counter()
        predict(one)
        taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken[_WARM_UP:])
