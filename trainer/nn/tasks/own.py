"""A task with a loss of the user's own, or with more metrics.

# my/model.py, --model my.model:network
def task(manifest):
    return Own(task_of(manifest), loss=keras.losses.Huber(reduction="none"), metrics=[MeanAbsolutePercentageError()])
"""

from collections.abc import Callable, Sequence
from typing import Self

import keras
import numpy as np
import tensorflow as tf

from trainer.base.errors import UserError
from trainer.nn.tasks.base import Task, columns


class Own(Task):
    """Another task, changed.

    Metrics see the first of the task's answers, as clients get it (probabilities, predictions), and so need neither the
    model nor its module's other code when an exported model is judged. They are Keras' own or like them: means over
    examples (`keras.metrics.Mean` and all that derive from it), since only those add up over batches and replicas.
    """

    def __init__(
        self,
        task: Task,
        *,
        loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
        metrics: Sequence[keras.metrics.Mean] = (),
        ranked_by: str | None = None,
        higher_is_better: bool = False,
    ) -> None:
        """A task like `task`.

        Args:
          task: Says what the outputs mean, what clients get, and all that is not said here.
          loss: Of labels and outputs as the model gives them, in this order: the loss of each example, [N]. A Keras loss
            needs `reduction="none"`.
          metrics: Beside the task's own.
          ranked_by: The name of one of all metrics, by which models are judged; by default the task's.
          higher_is_better: Whether more is better of those in `metrics`.
        """
        for metric in metrics:
            if not isinstance(metric, keras.metrics.Mean):
                raise UserError(
                    f"metric {metric.name} is no mean over examples (keras.metrics.Mean), so it does not add up over batches "
                    "and replicas; derive a task and define it in `measure`"
                )
        names = [*task.metrics, *(metric.name for metric in metrics)]
        if len({"loss", *names}) <= len(names):
            raise UserError(f"two metrics of one name: {', '.join(sorted(names))}")
        self._task, self._loss, self._metrics = task, loss, tuple(metrics)
        self.meaning = task.meaning
        self.outputs, self.answers, self.metrics = task.outputs, task.answers, tuple(names)
        self.label_smoothing = task.label_smoothing if loss is None else None
        self.ranking = (ranked_by,) if ranked_by else task.ranking
        added = frozenset() if higher_is_better else frozenset(metric.name for metric in metrics)
        self.lower_is_better = task.lower_is_better | added

    def wrong_labels(self, labels: np.ndarray) -> str | None:
        """The task's."""
        return self._task.wrong_labels(labels)

    def wrong_values(self, outputs: np.ndarray, operation: str) -> str | None:
        """The task's, unless the loss is another, which may take what it likes."""
        judge = self._task if self._loss is None else super()
        return judge.wrong_values(outputs, operation)

    def losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """This loss, or else the task's."""
        if self._loss is None:
            return self._task.losses(outputs, labels)
        losses = tf.cast(self._loss(labels, outputs), tf.float32)
        if losses.shape.rank != 1:
            raise UserError(f"the loss gives {losses.shape} and not one number for each example; reduction='none' does")
        return losses

    def metric_sums(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The task's metrics, and these."""
        answers = self._task.answer(outputs)[self.answers[0]]
        own = (self._state(metric, answers, labels)[0] for metric in self._metrics)
        return *self._task.metric_sums(outputs, labels), *own

    def smoothed(self, label_smoothing: float) -> Self:
        """The same of the task."""
        other = super().smoothed(label_smoothing)
        other._task = self._task.smoothed(label_smoothing)
        return other

    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """The task's."""
        return self._task.answer(outputs)

    def evidence(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The task's."""
        return self._task.evidence(outputs, labels)

    def score(self, means: Sequence[float], evidence: Sequence[np.ndarray]) -> dict[str, float]:
        """The task's, with this loss and these metrics."""
        known = 1 + len(self._task.metrics)
        found = self._task.score(means[:known], evidence)
        return found | {m.name: _result(m, mean) for m, mean in zip(self._metrics, means[known:], strict=True)}

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """The task's, with these metrics; the loss is the task's, as it needs the model's outputs."""
        found = self._task.measure(answers, labels)
        for metric in self._metrics:
            total, count, *_ = self._state(metric, tf.constant(answers, tf.float32), tf.constant(labels))
            found[metric.name] = _result(metric, float(total) / float(count))
        return found

    def _state(self, metric: keras.metrics.Mean, answers: tf.Tensor, labels: tf.Tensor) -> list[tf.Tensor]:
        """Total and count after these examples alone."""
        if answers.shape.rank == 2 and labels.shape.rank == 1 and answers.shape[1] == 1:
            labels = columns(labels)
        return metric.stateless_update_state([tf.zeros([]) for _ in metric.variables], labels, answers)


def _result(metric: keras.metrics.Mean, mean: float) -> float:
    return float(metric.stateless_result([tf.constant(mean, tf.float32), tf.constant(1.0)]))
