"""A step of the user's own model before training, to refuse in one line what would fail or be wrong later.

    trial.run(build, opts, manifest, replicas=2)  # prints what the user should know

On one batch of the training split, on the chief's processor and on models of its own, whose state it changes and throws
away: it builds, evaluates, takes a step, and makes the signature of the export. The models that come with the trainer are
known to be right and need no trial.
"""

import dataclasses
import gc
import math
import warnings
from collections.abc import Callable, Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from trainer import learning
from trainer.base.errors import UserError, first_line
from trainer.base.manifest import Manifest
from trainer.data import records
from trainer.job_dir import export
from trainer.job_dir.done import Done
from trainer.nn import tables, weights
from trainer.nn.layers import SYNCHRONISED
from trainer.nn.models import registry
from trainer.nn.models.registry import Builder
from trainer.options import Options
from trainer.steps import TrainStep

_MOST_EXAMPLES = 32
_ROUNDING = 0.05  # of probabilities, which large logits and bfloat16 make coarse
# Stateful operations, whose numbers go on from a state that no checkpoint has.
_DRAWS = ("Multinomial", "RandomGamma", "RandomPoisson", "RandomShuffle", "RandomStandardNormal", "RandomUniform")
_DRAWS += ("RandomUniformInt", "TruncatedNormal", "ParameterizedTruncatedNormal", "RandomPoissonV2")
_TOLD_BESIDE = {"step", "time", "event", "best", "loss", "examples"} | {f.name for f in dataclasses.fields(Done)}
_CHANGES = ("LookupTableImport", "LookupTableInsert", "LookupTableRemove")


def run(build: Builder, opts: Options, manifest: Manifest, *, replicas: int) -> None:
    """Tries the model if it is the user's own, refuses what would not be trained right, and tells what is to be known."""
    if opts.model in registry.NAMES:
        return
    for note in try_out(build, opts, manifest, replicas=replicas):
        print(f"--model {opts.model}: {note}", flush=True)
    keras.utils.set_random_seed(opts.seed)  # the job's weights are to be those that they would be without
    gc.collect()  # models refer to themselves, and a GPU's memory is wanted


def try_out(build: Builder, opts: Options, manifest: Manifest, *, replicas: int) -> list[str]:
    """Tries the model for a job of `replicas` that step together. Returns what the user should know, a line each."""
    trial = _Trial(build, opts, manifest)
    trial.evaluate()
    notes = trial.step(replicas)
    trial.export()
    return notes


class _Trial:
    def __init__(self, build: Builder, opts: Options, manifest: Manifest) -> None:
        self._build, self._task, self._opts, self._manifest = build, build.task, opts, manifest
        self._model = build()
        self._columns = next(records.batches(manifest, opts.data_dir, "train", _MOST_EXAMPLES))
        self._batch = build.prepare(self._columns)
        if manifest.label not in self._batch:
            raise self._refusal(f"prepare leaves out the label, {manifest.label!r}, where it is among the columns")
        self._features = dict(self._batch)
        self._labels = self._features.pop(manifest.label)
        self._examples = int(tf.shape(self._labels)[0])

    def _refusal(self, why: str) -> UserError:
        return UserError(f"--model {self._opts.model}: {why}")

    def evaluate(self) -> None:
        """Holds the outputs against the task."""
        if taken := _TOLD_BESIDE.intersection(self._task.metrics):
            raise self._refusal(f"a metric cannot be called {min(taken)}, which the job tells beside the metrics")
        if wrong := self._task.wrong_labels(self._labels.numpy()):
            raise self._refusal(wrong)

        @tf.function(autograph=False)
        def call(features: Mapping[str, tf.Tensor]) -> tf.Tensor:
            outputs = self._model(features, training=False)
            if wrong := self._task.wrong_form(outputs, self._examples):
                raise self._refusal(wrong)
            return tf.identity(outputs)

        concrete = call.get_concrete_function(self._features)
        self._outputs = call(self._features)
        if wrong := self._task.wrong_values(self._outputs.numpy(), _last_operation(concrete.graph)):
            raise self._refusal(wrong)

    def step(self, replicas: int) -> list[str]:
        """Differentiates and updates, and holds what the graph does against what a checkpoint has."""
        model, opts = self._model, self._opts
        optimizer = learning.optimizer(opts, model, self._manifest)
        step = TrainStep(
            model=model,
            optimizer=optimizer,
            task=self._task,
            label=self._manifest.label,
            global_batch=self._examples,
            seed=opts.seed,
        )
        without: list[str] = []
        count = max(1, self._examples // 2)

        @tf.function(autograph=False)
        def take(first: tf.Tensor) -> tf.Tensor:
            part = {n: tf.ensure_shape(c[first : first + count], [count, *c.shape[1:]]) for n, c in self._batch.items()}
            values, gradients = step.differentiate(part, tf.constant(0, tf.int64), first, count)
            names = weights.names(model)
            pairs = zip(model.trainable_variables, gradients, strict=True)
            without.extend(names[id(weight)] for weight, gradient in pairs if gradient is None)
            if len(without) == len(gradients):
                raise self._refusal(
                    "no weight has a gradient: the loss does not follow from any in a way that can be learnt"
                )
            optimizer.apply(gradients, model.trainable_variables)
            return values

        if not model.trainable_variables:
            raise self._refusal("it has no weight to train")
        with warnings.catch_warnings(action="ignore"):  # Keras tells of gradients that there are not
            concrete = take.get_concrete_function(tf.TensorSpec([], tf.int32))
        self._refuse_state(concrete.graph, [*model.variables, *model.metrics_variables, *optimizer.variables])
        before = {name: weight.numpy() for name, weight in weights.named(model).items()}
        loss = float(take(tf.constant(0))[0])
        if not math.isfinite(loss):
            raise self._refusal(f"the loss of the untrained model is {loss}")
        if replicas > 1:
            self._refuse_unshared(before, lambda: take(tf.constant(self._examples - count)))
        if opts.jit_compile:
            compiled = tf.function(dataclasses.replace(step, jit_compile=True), autograph=False)
            try:
                compiled(self._batch, tf.constant(0, tf.int64), 0, self._examples)
            except tf.errors.OpError as error:
                raise self._refusal(f"XLA cannot compile it ({first_line(error)}); leave out --jit-compile") from None
        notes = []
        if without:
            notes.append(f"not trained, because the loss does not depend on them: {weights.listed(without)}")
        if drawn := sorted({op for op in _operations(concrete.graph) if op in _DRAWS}):
            why = f"it draws by tf.random ({', '.join(drawn)}), which a resumed job does not repeat; use keras.random"
            if opts.deterministic:
                raise self._refusal(f"{why}, or leave out --deterministic")
            notes.append(why)
        return notes

    def _refuse_state(self, graph: tf.Graph, known: list[keras.Variable]) -> None:
        """Refuses what is used in training and is neither of the model's weights nor of the optimizer."""
        handles = {id(variable.value.handle) for variable in known}
        for held, inside in graph.captures:
            if held.dtype != tf.resource or id(held) in handles:
                continue
            # A table does not change unless that is asked for. What is used in loops alone is not looked into.
            users = [operation.type for operation in inside.consumers()]
            if not all("LookupTable" in user or user.endswith(("While", "If", "Call")) for user in users):
                named = [v.name for v in graph.variables if v.handle is held]
                raise self._refusal(
                    f"it uses a tf.Variable{f' ({named[0]})' if named else ''} of which Keras does not know, so it would be "
                    "in no checkpoint and no export; make it by add_weight of a layer, or as a keras.Variable"
                )
        if any(user.startswith(_CHANGES) for user in _operations(graph)):
            raise self._refusal("it changes a lookup table in training, which would be in no checkpoint")

    def _refuse_unshared(self, before: Mapping[str, np.ndarray], second_half: Callable[[], object]) -> None:
        """Refuses weights that a layer itself sets by its part of the batch: every replica would have others.

        So two halves of the batch, as two replicas have them, must set them alike.
        """
        layers = {id(w): layer for layer in self._model._flatten_layers() for w in layer.weights}
        own = {n: w for n, w in weights.named(self._model).items() if not w.trainable}
        own = {n: w for n, w in own.items() if not isinstance(layers.get(id(w)), SYNCHRONISED)}
        first = {name: weight.numpy() for name, weight in own.items()}
        weights.put(before, self._model)
        second_half()
        if unlike := [name for name, weight in own.items() if not np.array_equal(weight.numpy(), first[name])]:
            raise self._refusal(
                f"a layer sets {weights.listed(unlike)} by the examples that it sees, and several replicas see others each; train "
                "on one device, or sum over the replicas in the layer as trainer.nn.layers.BatchNormalization does"
            )

    def export(self) -> None:
        """Makes the exported model's signature and compares its answers with those of the model."""
        weights_now = {name: weight.numpy() for name, weight in weights.named(self._model).items()}
        served = self._build()
        if tables.digest(served) != tables.digest(self._model):
            raise self._refusal(
                "it has other weights, vocabularies or statistics each time that it is built; make them a function of the "
                "manifest and of files alone, in a fixed order"
            )
        weights.put(weights_now, served)
        endpoint = export.signature(served, self._build, self._manifest)
        columns = {feature.name: self._columns[feature.name] for feature in self._manifest.inputs}
        if "PyFunc" in "".join(_operations(endpoint.get_concrete_function(**columns).graph)):
            raise self._refusal("it calls Python in its graph, which the exported model cannot take along")
        answers = endpoint(**columns)
        expected = self._task.answer(self._model(self._features, training=False))
        for name, answer in expected.items():
            if answer.dtype.is_floating and not np.allclose(answers[name], answer, rtol=_ROUNDING, atol=_ROUNDING):
                raise self._refusal("the exported model does not answer as the model that was trained")


def _last_operation(graph: tf.Graph) -> str:
    """Type of the operation that makes the graph's output, passing over those that do not compute."""
    operation = graph.outputs[0].op
    while operation.type in ("Identity", "Cast", "Reshape", "Squeeze"):
        operation = operation.inputs[0].op
    return operation.type


def _operations(graph: tf.Graph) -> Iterator[str]:
    """Types of all operations, also of those inside of loops and conditions."""
    definition = graph.as_graph_def()
    yield from (node.op for node in definition.node)
    yield from (node.op for function in definition.library.function for node in function.node_def)
