"""From the options to what learns: optimizer, learning-rate schedule, decayed weights. The model states the defaults."""

from collections.abc import Sequence

import keras

from trainer.base.errors import UserError
from trainer.nn import schedules
from trainer.nn.models.registry import default
from trainer.nn.optimizers import Adam
from trainer.options import Options

_MOMENTUM = 0.9
_FALLING = {"linear": schedules.linear, "cosine": schedules.cosine}


def optimizer(
    opts: Options, *, examples: int, examples_per_step: int, horizon_steps: int
) -> keras.optimizers.Optimizer:
    """The optimizer, with its learning rate as a function of the step; a falling one ends at `horizon_steps`.

    Raises:
      UserError: If an option is given that means nothing to what the model or another option has chosen.
    """
    rate = _schedule(opts, examples, examples_per_step, horizon_steps)
    if (opts.optimizer or default(opts.model, "OPTIMIZER")) == "adam":
        if opts.momentum is not None:
            raise UserError("--momentum is for --optimizer sgd, and this job's is adam; leave it out")
        return Adam(rate)
    return keras.optimizers.SGD(rate, momentum=_MOMENTUM if opts.momentum is None else opts.momentum)


def falls(opts: Options) -> bool:
    """Whether the learning rate ends at 0, at the horizon."""
    return (opts.schedule or default(opts.model, "SCHEDULE")) in _FALLING


def _schedule(opts: Options, examples: int, examples_per_step: int, horizon_steps: int) -> schedules.Schedule:
    rate = opts.learning_rate or default(opts.model, "LEARNING_RATE")
    name = opts.schedule or default(opts.model, "SCHEDULE")
    if opts.horizon_steps is not None and name not in _FALLING:
        raise UserError(f"--horizon-steps is for --schedule linear or cosine, and this job's is {name}; leave it out")
    if opts.factors is not None and name != "piecewise":
        raise UserError(f"--boundaries-epochs is for --schedule piecewise, and this job's is {name}; leave it out")
    factor = None
    if name == "piecewise":
        factor = schedules.piecewise(
            opts.boundaries_epochs or default(opts.model, "BOUNDARIES_EPOCHS"),
            opts.factors or default(opts.model, "FACTORS"),
            examples_per_epoch=examples,
            examples_per_step=examples_per_step,
        )
    elif name in _FALLING:
        factor = _FALLING[name](horizon_steps)
    return schedules.Schedule(rate, factor, warmup_steps=opts.warmup_steps)


def decay(opts: Options, model: keras.Model) -> tuple[float, Sequence[keras.Variable]]:
    """Weight decay, and the weights that decay."""
    rate = default(opts.model, "WEIGHT_DECAY") if opts.weight_decay is None else opts.weight_decay
    # Keras calls them kernel, depthwise_kernel, pointwise_kernel, recurrent_kernel, and of an adapter lora_kernel_a.
    everything = opts.weight_decay_on == "all"
    return rate, [w for w in model.trainable_variables if everything or "kernel" in w.name.split("_")]
