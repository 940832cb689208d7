"""A user's model with a smooth optimizer of its own: `--model fine_tuned:subclassed`."""

import keras
from own_models import subclassed  # noqa: F401 (the trainer finds it here)

LEARNING_RATE = 0.01


def optimizer(manifest, schedule):
    return keras.optimizers.SGD(schedule, momentum=0.8, nesterov=True, weight_decay=0.1)
