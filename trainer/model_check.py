"""Check of the user's own model before training, to refuse in one line what would fail or be wrong later.

    model_check.run(build, opts, manifest)

On one batch of the training split, on the chief's processor and on models of its own: it builds, evaluates, takes a step,
and makes the signature of the export. The models that come with the trainer need no check.
"""

import dataclasses
import gc
import math

import keras
import numpy as np
import tensorflow as tf

from common.errors import UserError
from common.manifest import Manifest
from trainer import export, learning
from trainer.data import records
from trainer.job.done import Done
from trainer.models import registry
from trainer.models.registry import Builder
from trainer.nn import tables, weights
from trainer.options import Options
from trainer.train_step import TrainStep

_MOST_EXAMPLES = 32
_ROUNDING = 0.05  # of probabilities, which large logits and bfloat16 make coarse
_RESERVED = {"step", "time", "event", "best", "loss", "examples"} | {f.name for f in dataclasses.fields(Done)}


def run(build: Builder, opts: Options, manifest: Manifest) -> None:
    """Checks the model if it is the user's own.

    Raises:
      UserError: If it would not be trained or exported right.
    """
    if opts.model in registry.NAMES:
        return
    try:
        _check(build, opts, manifest)
    except _Refusal as refusal:
        raise UserError(f"--model {opts.model}: {refusal}") from None
    keras.utils.set_random_seed(opts.seed)  # the job's weights are to be those that they would be without
    gc.collect()  # models refer to themselves, and a GPU's memory is wanted


class _Refusal(Exception):
    """A reason why the model cannot be trained."""


def _check(build: Builder, opts: Options, manifest: Manifest) -> None:
    model = build()
    columns = next(records.batches(manifest, opts.data_dir, "train", _MOST_EXAMPLES))
    batch = build.prepare(columns)
    if manifest.label not in batch:
        raise _Refusal(f"prepare leaves out the label, {manifest.label!r}, where it is among the columns")
    features = {name: column for name, column in batch.items() if name != manifest.label}
    labels = batch[manifest.label].numpy()
    if reserved := _RESERVED.intersection(build.task.metric_names):
        raise _Refusal(f"a metric cannot be called {min(reserved)}, which the job tells beside the metrics")
    _refuse_if(build.task.wrong_labels(labels))
    _check_outputs(model, build, features, len(labels))
    _refuse_if(build.task.wrong_metrics(model(features, training=False), batch[manifest.label]))
    _take_step(model, build, opts, manifest, batch, len(labels))
    _check_export(model, build, manifest, columns, features)


def _refuse_if(problem: str | None) -> None:
    if problem:
        raise _Refusal(problem)


def _check_outputs(model: keras.Model, build: Builder, features: dict[str, tf.Tensor], examples: int) -> None:
    """Compares the outputs with what the task takes."""

    @tf.function(autograph=False)
    def call() -> tf.Tensor:
        outputs = model(features, training=False)
        _refuse_if(build.task.wrong_form(outputs, examples))
        return tf.identity(outputs)

    operation = call.get_concrete_function().graph.outputs[0].op
    while operation.type in ("Identity", "Cast", "Reshape", "Squeeze"):  # which do not compute
        operation = operation.inputs[0].op
    _refuse_if(build.task.wrong_values(call().numpy(), operation.type))


def _take_step(
    model: keras.Model, build: Builder, opts: Options, manifest: Manifest, batch: dict[str, tf.Tensor], examples: int
) -> None:
    if not model.trainable_variables:
        raise _Refusal("it has no weight to train")
    optimizer = learning.optimizer(opts, model, manifest)
    step = TrainStep(
        model=model,
        optimizer=optimizer,
        task=build.task,
        label=manifest.label,
        global_batch=examples,
        seed=opts.seed,
    )

    @tf.function(autograph=False)
    def take_step() -> tf.Tensor:
        values, gradients = step.differentiate(batch, tf.constant(0, tf.int64), 0, examples)
        if all(gradient is None for gradient in gradients):
            raise _Refusal("no weight has a gradient: the loss does not follow from any in a way that can be learnt")
        optimizer.apply(gradients, model.trainable_variables)
        return values[0]

    loss = float(take_step())
    if not math.isfinite(loss):
        raise _Refusal(f"the loss of the untrained model is {loss}")


def _check_export(
    model: keras.Model,
    build: Builder,
    manifest: Manifest,
    columns: dict[str, tf.Tensor],
    features: dict[str, tf.Tensor],
) -> None:
    """Makes the exported model's signature and compares its answers with those of the model."""
    served = build()
    if tables.digest(served) != tables.digest(model):
        raise _Refusal(
            "it has other weights, vocabularies or statistics each time that it is built; make them a function of the "
            "manifest and of files alone, in a fixed order"
        )
    weights.put({name: weight.numpy() for name, weight in weights.named(model).items()}, served)
    endpoint = export.signature(served, build, manifest)
    answers = endpoint(**{feature.name: columns[feature.name] for feature in manifest.inputs})
    for name, answer in build.task.answer(model(features, training=False)).items():
        if answer.dtype.is_floating and not np.allclose(answers[name], answer, rtol=_ROUNDING, atol=_ROUNDING):
            raise _Refusal("the exported model does not answer as the model that was trained")
