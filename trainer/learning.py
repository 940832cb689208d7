"""From the options to what learns: optimizer, learning-rate schedule, decayed weights. The model states the defaults."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest
from trainer.models.registry import default, options
from trainer.nn import schedules
from trainer.nn.optimizers import SGD, Adam, AdamW
from trainer.options import Options

_MOMENTUM, _DECAY_OF_ADAMW = 0.9, 0.004  # as Keras has the latter
# What Keras' optimizers may do besides, and nothing here goes by.
_NOT_HERE = ("gradient_accumulation_steps", "use_ema", "loss_scale_factor")
_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
# Flags that mean nothing to an optimizer of the user's own.
_OF_OURS = ("optimizer", "momentum", "clip_norm")
_FALLING = {"linear": schedules.linear, "cosine": schedules.cosine}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSize:
    """How much there is to do; where nothing is learnt, that does not matter."""

    replicas: int = 1  # that take part in a step
    batch: int = 1  # examples of a step over all of them
    examples: int = 1  # of the training split
    last_step: int = 1
    horizon: int = 1  # the step at which a falling learning rate is 0


def training_size(opts: Options, manifest: Manifest, first_start: Mapping[str, Any], replicas: int) -> TrainingSize:
    """Returns the size of a job on `replicas`, for which `first_start` decided, if there was one."""
    examples = manifest.split("train").examples
    batch, last_step = opts.global_batch_size(replicas), opts.last_step(examples, replicas)
    if batch < replicas:
        raise UserError(
            f"--batch-size {batch} leaves some of {replicas} replicas without an example; use {replicas} or more"
        )
    if (before := first_start.get("batch_size", batch)) != batch:
        raise UserError(
            f"--per-replica-batch-size {opts.per_replica_batch_size} on {replicas} replicas makes {batch} examples a "
            f"step, and this job began with {before}; use as many replicas as then, or another --job-dir"
        )
    # A job that is to train for more steps than at first keeps the schedule that it began with.
    horizon = first_start.get("horizon_steps", last_step)
    return TrainingSize(replicas=replicas, batch=batch, examples=examples, last_step=last_step, horizon=horizon)


def optimizer(
    opts: Options, model: keras.Model, manifest: Manifest, size: TrainingSize = TrainingSize()
) -> keras.optimizers.Optimizer:
    """Returns the model's optimizer, built, with its learning rate as a function of the step. For use in the strategy's scope."""
    rate = _schedule(opts, size)
    created = _own(opts, manifest, rate) if default(opts.model, "optimizer") else _shipped(opts, rate)
    if isinstance(created, AdamW):
        created.exclude_from_weight_decay([weight for weight in model.trainable_variables if not _decays(weight)])
    created.build(model.trainable_variables)
    return created


def _shipped(opts: Options, rate: schedules.Schedule) -> keras.optimizers.Optimizer:
    name, options = _optimizer(opts), {"global_clipnorm": opts.clip_norm}
    if name == "sgd":
        return SGD(rate, momentum=_MOMENTUM if opts.momentum is None else opts.momentum, **options)
    if opts.momentum is not None:
        raise UserError(f"--momentum is for --optimizer sgd, and this job's is {name}; leave it out")
    if name == "adam":
        return Adam(rate, **options)
    return AdamW(rate, weight_decay=_decay_rate(opts), **options)


def _own(opts: Options, manifest: Manifest, rate: schedules.Schedule) -> keras.optimizers.Optimizer:
    """Returns the optimizer of the model's module."""
    flags = [f"--{name.replace('_', '-')}" for name in _OF_OURS if getattr(opts, name) is not None]
    if flags:
        raise UserError(
            f"{flags[0]} means nothing to --model {opts.model}, whose module has an optimizer; leave it out"
        )
    created, general = default(opts.model, "optimizer")(manifest, rate), keras.optimizers.Optimizer
    if not isinstance(created, general) or type(created).apply is not general.apply:
        why = f"gives a {type(created).__name__}; give an optimizer of Keras that has no other inside"
    elif created._learning_rate is not rate:
        why = "does not take the schedule that it is given as its learning rate, so flags of that would do nothing"
    elif used := [name for name in _NOT_HERE if getattr(created, name)]:
        why = f"uses {used[0]}, which means nothing here"
    # Each replica would clip its own part of the gradients.
    elif tf.distribute.get_strategy().num_replicas_in_sync > 1 and (used := [n for n in _CLIPS if getattr(created, n)]):
        why = f"uses {used[0]}, which on several replicas is another thing than on one; train on one device"
    else:
        return created
    raise UserError(f"--model {opts.model}: its optimizer(manifest, schedule) {why}")


def falls(opts: Options) -> bool:
    """Returns whether the learning rate ends at 0, at the horizon."""
    return (opts.schedule or default(opts.model, "SCHEDULE")) in _FALLING


def _schedule(opts: Options, size: TrainingSize) -> schedules.Schedule:
    rate = opts.learning_rate or default(opts.model, "LEARNING_RATE")
    name = opts.schedule or default(opts.model, "SCHEDULE")
    if opts.factors is not None and name != "piecewise":
        raise UserError(f"--boundaries-epochs is for --schedule piecewise, and this job's is {name}; leave it out")
    factor = None
    if name == "piecewise":
        factor = schedules.piecewise(
            opts.boundaries_epochs or default(opts.model, "BOUNDARIES_EPOCHS"),
            opts.factors or default(opts.model, "FACTORS"),
            examples_per_epoch=size.examples,
            examples_per_step=size.batch,
        )
    elif name in _FALLING:
        factor = _FALLING[name](size.horizon)
    return schedules.Schedule(rate, factor, warmup_steps=opts.warmup_steps)


def settings(opts: Options, size: TrainingSize) -> dict[str, Any]:
    """Returns every option that decides what is learnt, with the value that it has in a job: also where nobody gave one.

    `none` stands for what does not exist, or means nothing to the model or to the other options.
    """
    resolved = {**opts.identity(), "batch_size": size.batch, "weight_decay": _decay_rate(opts)}
    for name in ("optimizer", "learning_rate", "schedule", "boundaries_epochs", "factors", "augment"):
        resolved[name] = resolved[name] or default(opts.model, name.upper())
    network = {field.name for field in dataclasses.fields(opts) if field.metadata["group"] == "network"}
    of_model = options(opts.model)
    resolved |= {name: of_model[name] for name in network & of_model.keys() if resolved[name] is None}
    if resolved["optimizer"] == "sgd" and resolved["momentum"] is None:
        resolved["momentum"] = _MOMENTUM
    if default(opts.model, "optimizer"):
        resolved["optimizer"] = "the model's own"
    if resolved["schedule"] != "piecewise":
        resolved["boundaries_epochs"] = resolved["factors"] = None
    resolved["horizon_steps"] = size.horizon if falls(opts) else None
    return {name: "none" if value is None else value for name, value in resolved.items()}


def decay(opts: Options, model: keras.Model) -> tuple[float, Sequence[keras.Variable]]:
    """Returns the factor of the squared weights in the loss, and these weights; 0 where the optimizer itself lets them decay."""
    rate = 0.0 if _optimizer(opts) == "adamw" else _decay_rate(opts)
    return rate, [weight for weight in model.trainable_variables if _decays(weight)]


def _decay_rate(opts: Options) -> float:
    if opts.weight_decay is not None:
        return opts.weight_decay
    return default(opts.model, "WEIGHT_DECAY") or (_DECAY_OF_ADAMW if _optimizer(opts) == "adamw" else 0.0)


def _decays(weight: keras.Variable) -> bool:
    # Keras calls them kernel, depthwise_kernel, pointwise_kernel, recurrent_kernel, and of an adapter lora_kernel_a.
    return "kernel" in weight.name.split("_")


def _optimizer(opts: Options) -> str:
    return opts.optimizer or default(opts.model, "OPTIMIZER")
