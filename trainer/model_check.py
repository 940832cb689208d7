"""Check of the user's own model before training, to refuse in one line what would fail or be wrong later.

    model_check.run(build, opts, manifest)

On one batch of the training split, on the chief's processor and on models of its own: it builds, evaluates, takes a step,
and makes the signature of the export. The models that come with the trainer need no check.
"""

import functools
import gc
import math
from collections.abc import Iterator

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
from trainer.nn import weights
from trainer.options import Options
from trainer.train_step import TrainStep

_MOST_EXAMPLES = 32
_ROUNDING = 0.05  # of probabilities, which large logits and bfloat16 make coarse
_RESERVED = {"step", "time", "event", "best", "loss", "examples"} | {*Done.model_fields}


def run(build: Builder, opts: Options, manifest: Manifest) -> None:
    """Checks the model if it is the user's own.

    Raises:
      UserError: If it would not be trained or exported right.
    """
    if opts.model in registry.NAMES:
        return
    for problem in _problems(build, opts, manifest):
        if problem:
            raise UserError(f"--model {opts.model}: {problem}")
    keras.utils.set_random_seed(opts.seed)  # the job's weights are to be those that they would be without
    gc.collect()  # models refer to themselves, and a GPU's memory is wanted


def _problems(build: Builder, opts: Options, manifest: Manifest) -> Iterator[str | None]:
    """Yields what is wrong with one part of a job after the other, in words; None where nothing is."""
    model, task = build(), build.task
    columns = next(records.batches(manifest, opts.data_dir, "train", _MOST_EXAMPLES))
    batch = build.prepare(columns)
    if manifest.label not in batch:
        yield f"prepare leaves out the label, {manifest.label!r}, where it is among the columns"
    features = dict(batch)
    labels = features.pop(manifest.label)
    examples = len(labels)
    if reserved := _RESERVED.intersection(task.metric_names):
        yield f"a metric cannot be called {min(reserved)}, which the job tells beside the metrics"
    yield task.wrong_labels(labels.numpy())

    infer = tf.function(functools.partial(model, training=False), autograph=False)
    outputs = infer(features)
    yield task.wrong_form(outputs, examples)
    operation = infer.get_concrete_function(features).graph.outputs[0].op
    while operation.type in ("Identity", "Cast", "Reshape", "Squeeze"):  # which do not compute
        operation = operation.inputs[0].op
    yield task.wrong_values(outputs.numpy(), operation.type)
    yield task.wrong_metrics(outputs, labels)

    if not model.trainable_variables:
        yield "it has no weight to train"
    optimizer = learning.optimizer(opts, model, manifest)
    step = TrainStep(
        model=model, optimizer=optimizer, task=task, label=manifest.label, global_batch=examples, seed=opts.seed
    )
    differentiate = tf.function(step.differentiate, autograph=False)
    (loss, *_), gradients = differentiate(batch, tf.constant(0, tf.int64), 0, examples)
    if all(gradient is None for gradient in gradients):
        yield "no weight has a gradient: the loss does not follow from any in a way that can be learnt"
    optimizer.apply(gradients, model.trainable_variables)
    if not math.isfinite(loss):
        yield f"the loss of the untrained model is {float(loss)}"

    served = build()
    if weights.digest(served) != weights.digest(model):
        yield (
            "it has other weights, vocabularies or statistics each time that it is built; make them a function of the "
            "manifest and of files alone, in a fixed order"
        )
    weights.put({name: weight.numpy() for name, weight in weights.named(model).items()}, served)
    endpoint = export.signature(served, build, manifest)
    answers = endpoint(**{feature.name: columns[feature.name] for feature in manifest.inputs})
    for name, answer in task.answer(infer(features)).items():
        if answer.dtype.is_floating and not np.allclose(answers[name], answer, rtol=_ROUNDING, atol=_ROUNDING):
            yield "the exported model does not answer as the model that was trained"
