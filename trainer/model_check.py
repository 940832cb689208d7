"""Check of the user's own model before training, to report in one line what would fail later.

    model_check.run(build, opts, manifest)

It builds models of its own on the chief, makes a step with one batch of the training split, and
calls the signature of the export. The models that come with the trainer need no check.
"""

import functools
import gc
import math

import keras
import numpy as np
import tensorflow as tf

from common.errors import UserError, about
from common.manifest import Manifest
from trainer import export, learning
from trainer.data import records
from trainer.models import registry
from trainer.models.registry import Builder
from trainer.nn import weights
from trainer.options import Options
from trainer.tasks.task import Task, state_of
from trainer.train_step import TrainStep

_MOST_EXAMPLES = 32


def run(build: Builder, opts: Options, manifest: Manifest) -> None:
    """Checks the model if it is the user's own, and then sets the random seed again.

    For models that come with the trainer it does nothing. Errors that the user's functions raise
    themselves pass unchanged.

    Raises:
      UserError: If the model would not be trained or exported correctly, or the first batch of the
        training split cannot be read.
      ConnectionError: If a store does not answer.
    """
    if opts.model in registry.NAMES:
        return
    with about(f"--model {opts.model}"):
        _check(build, opts, manifest)
    # The check has drawn random numbers. The job's weights must be those that it would have
    # without the check.
    keras.utils.set_random_seed(opts.seed)
    gc.collect()  # Models are reference cycles, and would hold memory of a GPU.


def _check(build: Builder, opts: Options, manifest: Manifest) -> None:
    model, task = build(), build.task
    if weights.digest(build()) != weights.digest(model):
        raise UserError(
            "it has other weights, vocabularies or statistics each time that it is built; make "
            "them a function of the manifest and of files alone, in a fixed order"
        )
    columns = next(records.batches(manifest, opts.data_dir, "train", _MOST_EXAMPLES))
    batch = build.prepare(columns)
    if manifest.label not in batch:
        raise UserError(
            f"prepare leaves out the label, {manifest.label!r}, where it is among the columns"
        )
    features = dict(batch)
    labels = features.pop(manifest.label)

    infer = tf.function(functools.partial(model, training=False), autograph=False)
    outputs = infer(features)
    shapes = [[len(labels), task.outputs], *([[len(labels)]] if task.outputs == 1 else [])]
    if getattr(outputs, "shape", None) not in shapes:
        actual = tf.nest.map_structure(lambda output: str(output.shape), outputs)
        raise UserError(f"its outputs are {actual}, and the task takes {shapes[0]}, {task.meaning}")
    operation = infer.get_concrete_function(features).graph.outputs[0].op
    while operation.type in ("Identity", "Cast", "Reshape", "Squeeze"):  # These compute nothing.
        operation = operation.inputs[0].op
    if (
        operation.type in ("Softmax", "Sigmoid")
        and "probabilities" in task.answers
        and not task.loss
    ):
        raise UserError(
            f"its outputs are probabilities already (by {operation.type}), and the loss takes "
            "logits; leave out the last activation"
        )
    check_metrics(task, labels, outputs)

    optimizer = learning.optimizer(opts, model, manifest)
    step = TrainStep(
        model=model,
        optimizer=optimizer,
        task=task,
        label=manifest.label,
        global_batch=len(labels),
        seed=opts.seed,
    )
    differentiate = tf.function(step.differentiate, autograph=False)
    (loss, *_), gradients = differentiate(batch, tf.constant(0, tf.int64), 0, len(labels))
    if all(gradient is None for gradient in gradients):
        raise UserError(
            "no weight has a gradient: none is trainable, or the loss does not follow from any"
        )
    if not math.isfinite(loss):
        raise UserError(f"the loss of the untrained model is {float(loss)}")
    optimizer.apply(gradients, model.trainable_variables)
    export.signature(model, build, manifest)(
        *(columns[feature.name] for feature in manifest.inputs)
    )


def check_metrics(task: Task, labels: tf.Tensor, outputs: tf.Tensor) -> None:
    """Checks that each metric is one number, and that its variables are sums over examples.

    Args:
      task: Task of the model.
      labels: Labels of a batch, as the dataset has them.
      outputs: Outputs of the model for it, [N, outputs] or [N] of one.

    Raises:
      UserError: If a metric is not such a number.
    """
    predictions = task.predictions(outputs)[:, -task.outputs :]
    middle = len(labels) // 2
    for metric in task.all_metrics:
        whole, first, second = (
            state_of(metric, labels[part], predictions[part])
            for part in (slice(None), slice(middle), slice(middle, None))
        )
        adds_up = all(
            np.allclose(one + other, both, rtol=1e-3, equal_nan=True)
            for one, other, both in zip(first, second, whole, strict=True)
        )
        if not adds_up or np.size(metric.stateless_result(whole)) > 1:
            raise UserError(
                f"metric {metric.name} is not one number made of sums over examples, so it does "
                "not add up over batches and replicas; give F1Score average='macro', or derive a "
                "task and define the metric in `measure`"
            )
