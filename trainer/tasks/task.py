"""Meaning of a model's outputs, and all that is computed from them: loss, metrics, answers.

Training, validation, export, evaluation and the gate know a task only by this interface, so that
another kind of task, or another metric, is one such class. Training and validation use Keras'
metrics without their variables: a batch gives the values that the variables would have after its
examples alone, and these states are summed over batches and replicas.
"""

import abc
import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras.src import backend

from common.errors import UserError
from trainer.job.done import Done
from trainer.nn.weights import automatic_name

# Names that the job's files have beside those of the metrics.
_RESERVED = {"step", "time", "event", "best", "examples", *Done.model_fields}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """Kind of task on one dataset, with the options that a model's module gives it.

    Metrics get the labels and the predictions (for a model with one logit, the probability of the
    second class). So they need neither the model nor the rest of its module when an exported model
    is judged. A metric is one of Keras, or like one, whose variables are sums over examples, since
    only those add up over batches and replicas.

    Attributes:
      meaning: Description of the outputs.
      answers: Names of the results that `answer` gives at least. The first names what
        `predictions` returns, which has at least one column for each output.
      ranking: Names of metrics by which one score is better than another; the first one that the
        score has is used.
      loss: Function of labels and outputs, in this order, that returns the loss of each example,
        [N], in place of `default_loss`. A Keras loss needs `reduction="none"`.
      metrics: Metrics beside `default_metrics`. The weights of classes do not count in them.
      rank_by: Name of a metric by which models are ranked, in place of `ranking`.
      lower_is_better: Names of the metrics of which a lower value is better.
    """

    meaning: ClassVar[str]
    answers: ClassVar[tuple[str, ...]]
    ranking: ClassVar[tuple[str, ...]]
    loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None
    metrics: Sequence[keras.metrics.Metric] = ()
    rank_by: str | None = None
    lower_is_better: Collection[str] = frozenset({"loss", "mae", "mse", "rmse"})

    def __post_init__(self) -> None:
        """Creates the variables of all metrics, and checks the names of the metrics.

        A name that Keras has made for one of `metrics` loses its number, as in `log_cosh_error_1`.

        It must run on all replicas outside a strategy's scope, which would share the variables.

        Raises:
          UserError: If two metrics, or a metric and a field of the journal, have one name; or if
            `rank_by` is neither `loss` nor the name of a metric.
        """
        for metric in self.metrics:
            # Keras appends a number that counts the metrics of a process.
            metric.name = automatic_name(metric) or metric.name
            if not metric.variables:  # Some metrics create them at their first update.
                metric.update_state(tf.zeros([1, self.outputs]), tf.zeros([1, self.outputs]))
        name, count = collections.Counter([*_RESERVED, *self.metric_names]).most_common(1)[0]
        if count > 1:
            raise UserError(
                f"two metrics, or a metric and a field of the journal, are called {name}; rename "
                "one"
            )
        allowed = ("loss", *self.metric_names)
        if self.rank_by not in (None, *allowed):
            raise UserError(
                f"models cannot be ranked by {self.rank_by}, but by {', '.join(allowed)}"
            )

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """Number of values that a model must give for each example."""

    @abc.abstractmethod
    def default_loss(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each example, [N].

        Args:
          labels: Labels as in the dataset, [N] or [N, targets].
          outputs: Outputs of the model, [N, outputs].
        """

    @abc.abstractmethod
    def default_metrics(self) -> list[keras.metrics.Metric]:
        """Returns new metrics of labels and predictions, whose variables are sums over examples."""

    @abc.abstractmethod
    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns what a model predicts, such as probabilities: the answer named `answers[0]`.

        Args:
          outputs: Outputs of the model, [N, outputs].

        Returns:
          float32 [N, k], with a column for each class or target.
        """

    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the answers of the exported model by name, given outputs [N, outputs]."""
        return {self.answers[0]: self.predictions(outputs)}

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """Returns the metrics of an exported model, by name; here those of `metrics`.

        A subclass adds its own and `loss`. This is the default loss, without what the model adds to
        it.

        Args:
          answers: First of the model's answers for a whole split, [N, k].
          labels: Labels as in the dataset.
        """
        predictions = answers[:, -self.outputs :].astype(np.float32)
        return {
            metric.name: float(metric.stateless_result(state_of(metric, labels, predictions)))
            for metric in self.metrics
        }

    @functools.cached_property
    def all_metrics(self) -> Sequence[keras.metrics.Metric]:
        """Default metrics, then the task's own; the loss is not among them.

        Only their stateless methods are called.
        """
        return *self.default_metrics(), *self.metrics

    @property
    def metric_names(self) -> tuple[str, ...]:
        """Names of all metrics."""
        return tuple(metric.name for metric in self.all_metrics)

    def losses(self, labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the loss of each example by `loss`, or else `default_loss`, float32 [N].

        Raises:
          UserError: If the loss function does not give one number for each example.
        """
        losses = tf.cast((self.loss or self.default_loss)(labels, outputs), tf.float32)
        if losses.shape.rank != 1:
            raise UserError(
                f"the loss gives {losses.shape} and not one number for each example; "
                "reduction='none' does"
            )
        return losses

    def loss_sum(
        self, labels: tf.Tensor, outputs: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the sum of the examples' losses, and the number of examples to divide it by.

        Args:
          labels: Labels as in the dataset.
          outputs: Outputs of the model.
          weights: Weights that multiply the losses, [N]; None for 1.

        Returns:
          The sum; and None if all examples count or, for outputs with a Keras mask, the number of
          those that it leaves, over which alone the sum is then.

        Raises:
          UserError: If the loss function does not give one number for each example.
        """
        losses = self.losses(labels, outputs)
        if weights is not None:
            losses *= weights
        if (mask := backend.get_keras_mask(outputs)) is None:
            return tf.reduce_sum(losses), None
        mask = tf.ensure_shape(tf.cast(mask, tf.float32), losses.shape)
        return tf.reduce_sum(losses * mask), tf.reduce_sum(mask)

    def states(self, labels: tf.Tensor, outputs: tf.Tensor) -> list[tf.Tensor]:
        """Returns the values of the metrics' variables after these examples alone.

        Args:
          labels: Labels as in the dataset.
          outputs: Outputs of the model.

        Returns:
          float32 [size] for each variable.
        """
        predictions = self.predictions(outputs)[:, -self.outputs :]
        backend.set_keras_mask(predictions, backend.get_keras_mask(outputs))
        states = [state_of(metric, labels, predictions) for metric in self.all_metrics]
        return [
            tf.reshape(tf.cast(variable, tf.float32), [-1])
            for state in states
            for variable in state
        ]

    @property
    def num_states(self) -> int:
        """Total number of values in all vectors that `states` returns."""
        return sum(math.prod(v.shape) for metric in self.all_metrics for v in metric.variables)

    def results(self, states: Iterable[float]) -> dict[str, float]:
        """Returns the value of each metric, by name.

        Args:
          states: Sums over batches and replicas of all values in `states`, in their order.
        """
        numbers = iter(states)
        values = {}
        for metric in self.all_metrics:
            variables = [
                tf.constant(list(itertools.islice(numbers, math.prod(v.shape))), v.dtype, v.shape)
                for v in metric.variables
            ]
            values[metric.name] = float(metric.stateless_result(variables))
        return values

    def ranked_by(self, score: Container[str]) -> str:
        """Returns the name of the metric that decides whether a score is better than another.

        It is the first of `rank_by`, the names in `ranking`, and `loss`, that the score has.
        """
        return next(
            name for name in (self.rank_by, *self.ranking, "loss") if name and name in score
        )

    def better(self, one: float, other: float, metric: str) -> bool:
        """Returns whether one value of a metric is better than another.

        Equal values are not better, and neither is any value than NaN, or NaN than any.
        """
        return one < other if metric in self.lower_is_better else one > other

    def rank(self, score: Mapping[str, float]) -> tuple[float, float]:
        """Returns a pair that is greater for a better score.

        It has the ranking metric, negated if lower is better, and then the negated loss.
        """
        value = score[metric := self.ranked_by(score)]
        return -value if metric in self.lower_is_better else value, -score["loss"]


def state_of(
    metric: keras.metrics.Metric, labels: tf.Tensor, predictions: tf.Tensor
) -> list[tf.Tensor]:
    """Returns the values of a metric's variables after these examples alone.

    Args:
      metric: The metric; its own variables do not change.
      labels: Labels as in the dataset, [N] or [N, targets].
      predictions: Predictions, [N, k].
    """
    if len(labels.shape) == 1 and predictions.shape[1] == 1:
        labels = columns(labels)
    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in metric.variables]
    return metric.stateless_update_state(zeros, labels, predictions)


def columns(values: tf.Tensor) -> tf.Tensor:
    """Returns numbers of examples as float32 [N, k]; numbers [N] become [N, 1]."""
    values = tf.cast(values, tf.float32)
    return values[:, tf.newaxis] if values.shape.rank == 1 else values
