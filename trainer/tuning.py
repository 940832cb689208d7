"""What a study of hyper-parameters is told of its trials.

Vertex AI (`HyperparameterTuningJob`), and AI Platform before it, name a file in the environment and read metrics from it;
its format is that of Google's library cloudml-hypertune.
"""

import functools
import os
from collections.abc import Mapping

_FILE = "CLOUD_ML_HP_METRIC_FILE"


def report(score: Mapping[str, float], step: int) -> None:
    """Tells each metric of an evaluation by its name; does nothing where there is no study."""
    if _FILE in os.environ:
        for name, value in score.items():
            _reporter().report_hyperparameter_tuning_metric(name, value, step)


@functools.cache
def _reporter() -> object:
    import hypertune

    return hypertune.HyperTune()
