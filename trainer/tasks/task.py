"""What a model's outputs mean, and all that is computed of them: the loss, the metrics, what a client gets.

Training, validation, export, evaluation and the gate know a task only by what stands here, so that another kind of task,
or another metric, is one such class. Training and validation use Keras' metrics without their variables: a batch gives
what the variables would be after its examples alone, and these states are summed over batches and replicas.
"""

import abc
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend

_SMALLEST = 1e-7


class Task(abc.ABC):
    """A kind of task on one dataset.

    Attributes:
      meaning: What the outputs are, in words.
      outputs: How many numbers a model has to give for an example.
      metrics: Those of Keras, of labels and `metric_predictions`, whose variables are sums over examples; only their stateless
        methods are called.
      weighted: Names of those metrics that take the weights of examples.
      num_aucs: How many of the last predictions are scores of a label that is 0 or 1, over which `auc` is a mean.
      ranking: Metrics by which one score is better than another: the first of them that the score has.
      lower_is_better: Those metrics of which less is more.
      answers: What `answer` gives at least; the first, `predictions`, has a number for each output.
    """

    meaning: ClassVar[str]
    outputs: int
    metrics: Sequence[keras.metrics.Metric]
    weighted: frozenset[str] = frozenset()
    num_aucs: int = 0
    ranking: ClassVar[tuple[str, ...]]
    lower_is_better: ClassVar[frozenset[str]] = frozenset({"loss", "mae", "mse", "rmse"})
    answers: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """What is minimised, of each example: float32 [N].

        Args:
          outputs: Of the model, [N, outputs].
          labels: As the dataset has them, [N] or [N, targets].
        """

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(metric.name for metric in self.metrics)

    def loss_sum(
        self, outputs: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the sum of the losses times the weights [N], and by how many examples Keras divides it.

        The second is None where that is all examples; else those that the mask of the outputs leaves.
        """
        losses = self.losses(outputs, labels)
        if weights is not None:
            losses *= weights
        if (mask := backend.get_keras_mask(outputs)) is None:
            return tf.reduce_sum(losses), None
        mask = tf.ensure_shape(tf.cast(mask, tf.float32), losses.shape)
        return tf.reduce_sum(losses * mask), tf.reduce_sum(mask)

    def states(self, outputs: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None = None) -> list[tf.Tensor]:
        """Returns the variables that the metrics have after these examples alone, float32 [size] each."""
        predictions = self.metric_predictions(outputs)
        backend.set_keras_mask(predictions, backend.get_keras_mask(outputs))
        states = (state_of(m, labels, predictions, weights if m.name in self.weighted else None) for m in self.metrics)
        return [tf.reshape(tf.cast(variable, tf.float32), [-1]) for state in states for variable in state]

    @property
    def num_states(self) -> int:
        """Returns the number of values in `states`."""
        return sum(math.prod(v.shape) for metric in self.metrics for v in metric.variables)

    def results(self, states: Iterable[float]) -> dict[str, float]:
        """Returns the value of each metric from sums of what `states` gives."""
        numbers = iter(states)
        values = {}
        for metric in self.metrics:
            variables = [
                tf.constant(list(itertools.islice(numbers, math.prod(v.shape))), v.dtype, v.shape)
                for v in metric.variables
            ]
            values[metric.name] = float(metric.stateless_result(variables))
        return values

    @abc.abstractmethod
    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the first of the answers to outputs [N, outputs], float32."""

    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """What the exported model says of outputs [N, outputs]."""
        return {self.answers[0]: self.predictions(outputs)}

    @abc.abstractmethod
    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """The metrics of an exported model, and `loss`, without the model's own: a number each.

        Args:
          answers: The first of what it has answered for a whole split, [N, outputs].
          labels: As the dataset has them.
        """

    @abc.abstractmethod
    def wrong_labels(self, labels: np.ndarray) -> str | None:
        """What is wrong with the labels of a batch, in words."""

    def wrong_form(self, outputs: Any, examples: int) -> str | None:
        """What is wrong with the type and shape of a model's outputs for some examples, in words."""
        wanted = f"the task's are [N, {self.outputs}], {self.meaning}"
        if not isinstance(outputs, tf.Tensor):
            return f"its outputs are a {type(outputs).__name__}, and {wanted}"
        shape = outputs.shape if outputs.shape.rank != 1 or self.outputs > 1 else [*outputs.shape, 1]
        if len(shape) == 2 and shape[0] in (None, examples) and outputs.dtype.is_floating:
            return None if shape[1] == self.outputs else f"it has {shape[1]} outputs, and {wanted}"
        return f"its outputs for {examples} examples are {outputs.dtype.name} {outputs.shape}, and {wanted}"

    def wrong_values(self, outputs: np.ndarray, operation: str) -> str | None:
        """What is wrong with outputs that TensorFlow's operation of that type has computed, in words."""
        return None if np.isfinite(outputs.astype(np.float32)).all() else "the untrained model's outputs are not finite"

    def wrong_metrics(self, outputs: tf.Tensor, labels: tf.Tensor) -> str | None:
        """Says which metric is not one number, or has variables that are not sums of what they are for parts of the examples."""
        scores = self.metric_predictions(outputs)
        middle = len(labels) // 2
        part = labels[:middle], scores[:middle]
        rest = labels[middle:], scores[middle:]
        for metric in self.metrics:
            first = state_of(metric, *part)
            size = np.size(metric.stateless_result(first))
            if size > 1:
                return (
                    f"metric {metric.name} gives {size} numbers and not one (an F1Score gives one with average='macro')"
                )
            expected = state_of(metric, labels, scores), state_of(metric, *rest, state=first)
            for states in zip(first, state_of(metric, *rest), *expected, strict=True):
                if not np.allclose(states[0] + states[1], states[2:], rtol=1e-3, equal_nan=True):
                    return (
                        f"the variables of metric {metric.name} are no sums over examples, so they do not add up over batches "
                        "and replicas; derive a task and define it in `measure`"
                    )
        return None

    def metric_predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns what metrics see: the predictions, of one logit the second of the two probabilities."""
        return self.predictions(outputs)[:, -self.outputs :]

    def evidence(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns for an `auc` the scores and the labels of each example, [N, 2, num_aucs], which replicas gather; or nothing."""
        if not self.num_aucs:
            return ()
        return (tf.stack([self.predictions(outputs)[:, -self.num_aucs :], columns(labels)], axis=1),)

    def score(self, loss: float, states: Iterable[float], evidence: Sequence[np.ndarray]) -> dict[str, float]:
        """Returns the loss and the metrics of a split.

        Args:
          loss: The mean over the examples of the split.
          states: Of the split.
          evidence: What `evidence` gives of all examples of the split, in any order.
        """
        score = {"loss": loss, **self.results(states)}
        for scores_and_labels in evidence:
            score |= mean_auc(*scores_and_labels.swapaxes(0, 1))
        return score

    def ranked_by(self, score: Mapping[str, float]) -> str:
        """The metric that decides whether a score is better than another."""
        return next(name for name in (*self.ranking, "loss") if name in score)

    def better(self, one: float, other: float, metric: str) -> bool:
        """Whether a value of a metric is better than another; equal ones are not, and nothing is better by NaN."""
        return one < other if metric in self.lower_is_better else one > other

    def rank(self, score: Mapping[str, float]) -> tuple[float, float]:
        """The greater, the better the score."""
        value = score[metric := self.ranked_by(score)]
        return -value if metric in self.lower_is_better else value, -score["loss"]


def probabilities_already(operation: str, *, sure: bool = False) -> str | None:
    """That outputs are probabilities where they are to be logits, if the operation makes such, or it is sure."""
    makes = operation in ("Softmax", "Sigmoid")
    if not makes and not sure:
        return None
    by = f" (by {operation})" if makes else ""
    return f"its outputs are probabilities already{by}, and the loss takes logits; leave out the last activation"


def log_losses(of_truth: np.ndarray) -> np.ndarray:
    """Cross-entropies in nats of the probabilities of what was true; bounded, where float32 has rounded one to zero."""
    return -np.log(np.maximum(of_truth, _SMALLEST, dtype=np.float64))


def mean_auc(scores: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Returns `auc`, the mean over those columns [N, k] whose labels are not all equal; nothing if there is none."""
    from sklearn.metrics import roc_auc_score  # importing it takes a second, and most models need none

    pairs = zip(labels.T == 1, scores.T, strict=True)
    areas = [roc_auc_score(column, of_column) for column, of_column in pairs if 0 < column.sum() < len(column)]
    return {"auc": float(np.mean(areas))} if areas else {}


def state_of(
    metric: keras.metrics.Metric,
    labels: tf.Tensor,
    predictions: tf.Tensor,
    weights: tf.Tensor | None = None,
    state: Sequence[tf.Tensor] | None = None,
) -> list[tf.Tensor]:
    """Returns the variables that a metric has after these examples, alone or after those of a state."""
    if len(labels.shape) == 1 and predictions.shape[1] == 1:
        labels = columns(labels)
    weighted = {} if weights is None else {"sample_weight": weights}
    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in metric.variables]
    return metric.stateless_update_state(state or zeros, labels, predictions, **weighted)


def columns(values: tf.Tensor) -> tf.Tensor:
    """Numbers of examples as float32 [N, k], those of one column from [N] too."""
    values = tf.cast(values, tf.float32)
    return values[:, tf.newaxis] if values.shape.rank == 1 else values
