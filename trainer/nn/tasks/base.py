"""What a model's outputs mean, and all that is computed of them: the loss, the metrics, what a client gets.

Training, validation, export, evaluation and the gate know a task only by what stands here, so that another kind of task,
or another metric, is one such class. In a step and over a split everything is a sum over examples: so it is exact
whatever the batches and however many replicas share them.
"""

import abc
import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from trainer.base.errors import UserError

_SMALLEST = 1e-7


class Task(abc.ABC):
    """A kind of task on one dataset.

    Attributes:
      meaning: What the outputs are, in words.
      outputs: How many numbers a model has to give for an example.
      metrics: Names of what `metric_sums` has.
      ranking: Metrics by which one score is better than another: the first of them that the score has.
      lower_is_better: Those metrics of which less is more.
      answers: What `answer` gives at least; the first has a number for each output.
      label_smoothing: The share of a label that `losses` spreads evenly over all that it could be, as Keras' losses do; None
        of a task that has no such labels.
    """

    meaning: ClassVar[str]
    outputs: int
    metrics: ClassVar[tuple[str, ...]]
    ranking: ClassVar[tuple[str, ...]]
    lower_is_better: ClassVar[frozenset[str]] = frozenset({"loss", "mae", "mse", "rmse"})
    answers: ClassVar[tuple[str, ...]]
    label_smoothing: float | None = None

    @abc.abstractmethod
    def losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """What is minimised, of each example: float32 [N].

        Args:
          outputs: Of the model, [N, outputs].
          labels: As the dataset has them, [N] or [N, targets].
        """

    @abc.abstractmethod
    def metric_sums(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Each of `metrics`, summed over the examples; float32 scalars. The arguments are those of `losses`."""

    def sums(self, outputs: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None = None) -> tuple[tf.Tensor, ...]:
        """Summed over the examples: the losses, times their weights [N] if there are any, and each of `metrics`."""
        losses = self.losses(outputs, labels)
        return tf.reduce_sum(losses if weights is None else losses * weights), *self.metric_sums(outputs, labels)

    def smoothed(self, label_smoothing: float) -> Self:
        """This task with another smoothing of labels; refused of numbers and of a loss of the user's own, which would not heed it."""
        if self.label_smoothing is None or not type(self).losses.__module__.startswith(__package__):
            raise UserError("--label-smoothing is for classes and labels with the loss that the trainer has for them")
        other = copy.copy(self)
        object.__setattr__(other, "label_smoothing", label_smoothing)  # of a frozen dataclass, perhaps the user's own
        return other

    @abc.abstractmethod
    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """What the exported model says of outputs [N, outputs]."""

    @abc.abstractmethod
    def measure(self, answers: np.ndarray, labels: np.ndarray, weights: np.ndarray | None = None) -> dict[str, Any]:
        """The metrics of an exported model, and `loss`, without the model's own: a number each.

        Args:
          answers: The first of what it has answered for a whole split, [N, outputs].
          labels: As the dataset has them.
          weights: How often each example is in each of R samples of N examples, [N, R]: every metric is then [R], NaN where
            a sample does not define it. A task may do without this argument: examples are repeated for it, which takes longer.
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

    def evidence(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """What of each example `score` needs beside the sums: floating or integer numbers [N, ...], which replicas gather."""
        return ()

    def score(self, means: Sequence[float], evidence: Sequence[np.ndarray]) -> dict[str, float]:
        """Of a split: `loss`, `metrics`, and what else validation shows.

        Args:
          means: Over the examples of the split, of what `sums` has.
          evidence: Each of what `evidence` gives, of the whole split in its order.
        """
        return dict(zip(("loss", *self.metrics), means, strict=True))

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


def mean(values: np.ndarray, weights: np.ndarray | None) -> Any:
    """Of values [N, ...] over the examples; by weights [N, R] over those of each of R samples, [R, ...]."""
    return values.mean(axis=0) if weights is None else (values.T @ weights).T / len(values)


def columns(values: tf.Tensor) -> tf.Tensor:
    """Numbers of examples as float32 [N, k], those of one column from [N] too."""
    values = tf.cast(values, tf.float32)
    return values[:, tf.newaxis] if values.shape.rank == 1 else values
