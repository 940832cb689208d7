"""Optimizer, learning-rate schedule and weight decay from options; models state the defaults."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest
from trainer.models.registry import DEFAULTS, default, options
from trainer.nn import schedules
from trainer.nn.optimizers import SGD, Adam, AdamW
from trainer.options import Options

_DECAY_OF_ADAMW = 0.004  # The default of Keras.
# Features of Keras' optimizers that the training loop here does not support.
_NOT_HERE = ("gradient_accumulation_steps", "use_ema", "loss_scale_factor")
_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
_FALLING = {"linear": schedules.linear, "cosine": schedules.cosine}
# Options that have an effect only if another one has one of these values.
_ONLY_WHERE = (
    (("optimizer", "clip_norm"), "optimizer", ("adam", "adamw", "sgd")),
    (("momentum",), "optimizer", ("sgd",)),
    (("boundaries_epochs", "factors"), "schedule", ("piecewise",)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSize:
    """Amount of training in a job. The defaults serve where nothing is trained."""

    batch: int = 1  # Examples of a step over all replicas.
    examples: int = 1  # Examples of the training split.
    last_step: int = 1  # Global step at which training ends.
    horizon: int = 1  # Global step at which a falling learning rate is 0.


def training_size(
    opts: Options, manifest: Manifest, first_start: Mapping[str, Any], replicas: int
) -> TrainingSize:
    """Returns the size of a job on `replicas`.

    Args:
      opts: Options of the job.
      manifest: Manifest of the dataset.
      first_start: Record of the job's first start, which decides batch size and schedule; empty if
        this is the first.
      replicas: Number of synchronous replicas; 1 in a parameter-server job.

    Raises:
      UserError: If there are no training examples, some replicas would have no example of a batch,
        the epochs are too many steps, or the global batch is not that of the first start.
    """
    examples = manifest.split("train").examples
    batch, last_step = opts.global_batch_size(replicas), opts.last_step(examples, replicas)
    if batch < replicas:
        raise UserError(
            f"--batch-size {batch} leaves some of {replicas} replicas without an example; use "
            f"{replicas} or more"
        )
    if (before := first_start.get("batch_size", batch)) != batch:
        raise UserError(
            f"--per-replica-batch-size {opts.per_replica_batch_size} on {replicas} replicas makes "
            f"{batch} examples a step, and this job began with {before}; use as many replicas as "
            "then, or another --job-dir"
        )
    # A job that is to train for more steps than at first keeps the schedule that it began with.
    horizon = first_start.get("horizon_steps", last_step)
    return TrainingSize(batch=batch, examples=examples, last_step=last_step, horizon=horizon)


def settings(opts: Options, size: TrainingSize = TrainingSize()) -> dict[str, Any]:
    """Returns all options that decide what is learnt, by name, with their defaults filled in.

    Options of a model of the user's own are among them by their own names. The text `none` stands
    for an option that has no value, or has no effect with this model or the other options. The
    value of `optimizer` is `the model's own` if the user's module has a function of that name.

    Args:
      opts: Options of the job.
      size: Size of the job, of which `batch_size` and `horizon_steps` are taken.

    Raises:
      UserError: If an option is given that has no effect with the others, or there is no such model
        or option of it.
    """
    stated = {name.lower(): default(opts.model, name) for name in DEFAULTS}
    defaults = {**options(opts.model), **stated, "momentum": 0.9}
    values = {
        name: defaults.get(name) if value is None else value
        for name, value in opts.identity().items()
    }
    del values["model_options"]
    values = opts.own | values
    values |= {
        "batch_size": size.batch,
        "horizon_steps": size.horizon if values["schedule"] in _FALLING else None,
    }
    if default(opts.model, "optimizer"):
        values["optimizer"] = "the model's own"
    if values["weight_decay"] is None:
        values["weight_decay"] = _DECAY_OF_ADAMW if values["optimizer"] == "adamw" else 0.0
    for names, decisive, fitting in _ONLY_WHERE:
        if values[decisive] in fitting:
            continue
        for name in names:
            if getattr(opts, name) is not None:
                raise UserError(
                    f"--{name.replace('_', '-')} is for jobs whose {decisive} is "
                    f"{' or '.join(fitting)}, and this one's is {values[decisive]}; leave it out"
                )
            if name != decisive:
                values[name] = None
    return {name: "none" if value is None else value for name, value in values.items()}


def optimizer(
    opts: Options, model: keras.Model, manifest: Manifest, size: TrainingSize = TrainingSize()
) -> keras.optimizers.Optimizer:
    """Returns the job's optimizer, built for the model, with its learning-rate schedule.

    It must be called in the strategy's scope.

    Args:
      opts: Options of the job.
      model: Model whose trainable variables are optimised.
      manifest: Manifest of the dataset, which the function `optimizer` of a user's own module gets,
        if it has one.
      size: Size of the job, which a schedule that falls or has steps needs. The default is for
        callers that do not train, such as one that restores a checkpoint.

    Raises:
      UserError: If an option has no effect with the others, there is no such model or option of it,
        or the optimizer that the user's own module makes cannot be used.
    """
    values = settings(opts, size)
    name, factor, clip = values["schedule"], None, {"global_clipnorm": opts.clip_norm}
    if name == "piecewise":
        factor = schedules.piecewise(
            values["boundaries_epochs"],
            values["factors"],
            examples_per_epoch=size.examples,
            examples_per_step=size.batch,
        )
    elif name in _FALLING:
        factor = _FALLING[name](size.horizon)
    rate = schedules.Schedule(values["learning_rate"], factor, warmup_steps=opts.warmup_steps)
    match values["optimizer"]:
        case "sgd":
            created = SGD(rate, momentum=values["momentum"], **clip)
        case "adam":
            created = Adam(rate, **clip)
        case "the model's own":
            created = _own(opts, manifest, rate)
        case _:
            created = AdamW(rate, weight_decay=values["weight_decay"], **clip)
            created.exclude_from_weight_decay(
                [weight for weight in model.trainable_variables if not _decays(weight)]
            )
    created.build(model.trainable_variables)
    return created


def _own(opts: Options, manifest: Manifest, rate: schedules.Schedule) -> keras.optimizers.Optimizer:
    """Returns the optimizer that the model's module makes, after checking that it can be used.

    Raises:
      UserError: If it is no optimizer of Keras, wraps another one, does not take the schedule
        `rate` as its learning rate, or uses gradient accumulation, moving averages of weights or
        loss scaling; or if it clips gradients, and there are several replicas.
    """
    create, general = default(opts.model, "optimizer"), keras.optimizers.Optimizer
    names = options(opts.model, "optimizer")
    created = create(manifest, rate, **{name: opts.own[name] for name in names})
    if not isinstance(created, general) or type(created).apply is not general.apply:
        why = (
            f"gives a {type(created).__name__}; give an optimizer of Keras that has no other inside"
        )
    elif created._learning_rate is not rate:
        why = (
            "does not take the schedule that it is given as its learning rate, so flags of that "
            "would do nothing"
        )
    elif used := [name for name in _NOT_HERE if getattr(created, name)]:
        why = f"uses {used[0]}, which means nothing here"
    # On several replicas, each would clip its own part of the gradients.
    elif tf.distribute.get_strategy().num_replicas_in_sync > 1 and (
        used := [n for n in _CLIPS if getattr(created, n)]
    ):
        why = (
            f"uses {used[0]}, which on several replicas is another thing than on one; train on "
            "one device"
        )
    else:
        return created
    raise UserError(f"--model {opts.model}: its optimizer(manifest, schedule) {why}")


def decay(opts: Options, model: keras.Model) -> tuple[float, Sequence[keras.Variable]]:
    """Returns the factor of half the squared weights in the loss, and these weights.

    The factor is 0 if the optimizer is `adamw`, which decays weights itself. The weights are the
    trainable kernels of the model, such as `kernel` and `depthwise_kernel`, and no biases.

    Raises:
      UserError: If an option has no effect with the others, or there is no such model or option of
        it.
    """
    values = settings(opts)
    rate = 0.0 if values["optimizer"] == "adamw" else values["weight_decay"]
    return rate, [weight for weight in model.trainable_variables if _decays(weight)]


def _decays(weight: keras.Variable) -> bool:
    # Keras' names are kernel, depthwise_kernel, pointwise_kernel,
    # recurrent_kernel and, for an adapter, lora_kernel_a.
    return "kernel" in weight.name.split("_")
