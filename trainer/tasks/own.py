"""A task with a loss of the user's own, or with more metrics.

# my/model.py, --model my.model:network
def task(manifest):
    return Own(task_of(manifest), loss=keras.losses.Huber(reduction="none"), metrics=[MeanAbsolutePercentageError()])
"""

from collections import Counter
from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from common.errors import UserError
from trainer.nn.weights import automatic_name
from trainer.tasks.task import Task, state_of


class Own(Task):
    """Another task, changed.

    Metrics see the labels and the first of the task's answers (probabilities, predictions), and so need neither the model
    nor its module's other code when an exported model is judged. They are any of Keras, or like them, whose variables are
    sums over examples, since only those add up over batches and replicas.
    """

    def __init__(
        self,
        task: Task,
        *,
        loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
        metrics: Sequence[keras.metrics.Metric] = (),
        weighted_metrics: Sequence[keras.metrics.Metric] = (),
        ranked_by: str | None = None,
        higher_is_better: bool = False,
    ) -> None:
        """Changes a task.

        Args:
          task: Says what the outputs mean, what clients get, and all that is not said here.
          loss: Of labels and outputs as the model gives them, in this order: the loss of each example, [N]. A Keras loss
            needs `reduction="none"`.
          metrics: Beside the task's own. As in Keras, the weights of examples do not count in them.
          weighted_metrics: Those in which they count. The evaluation of an exported model, which has no weights, lacks them.
          ranked_by: The name of one of all metrics that are not weighted, by which models are judged; by default the task's.
          higher_is_better: Whether more is better of those given here.
        """
        added = (*metrics, *weighted_metrics)
        for metric in added:
            metric.name = automatic_name(metric) or metric.name  # Keras numbers the names of all in a process
            if not metric.variables:  # one makes them at its first update
                predictions = task.metric_predictions(tf.zeros([1, task.outputs]))
                are_classes = "class_index" in task.answers and task.outputs > 1
                metric.update_state(tf.zeros([1]) if are_classes else tf.zeros_like(predictions), predictions)
        taken = {"loss", *task.metric_names, *task.ranking}
        names = Counter([*taken, *(metric.name for metric in added)])
        name, count = names.most_common(1)[0]
        if count > 1:
            raise UserError(f"two metrics are called {name}; give one of them another name")
        unweighted = taken | {metric.name for metric in metrics}
        if ranked_by not in (None, *unweighted):
            raise UserError(f"models cannot be ranked by {ranked_by}, but by {', '.join(sorted(unweighted))}")
        self._task, self._loss, self._added = task, loss, added
        self.metrics = *task.metrics, *added
        self.weighted = task.weighted.union(metric.name for metric in weighted_metrics)
        for name in ("meaning", "outputs", "answers", "num_aucs"):
            setattr(self, name, getattr(task, name))
        self.ranking = (ranked_by,) if ranked_by else task.ranking
        self.lower_is_better = task.lower_is_better.union(() if higher_is_better else (metric.name for metric in added))

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

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """The task's."""
        return self._task.predictions(outputs)

    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """The task's."""
        return self._task.answer(outputs)

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """The task's, with these metrics; the loss is the task's, as it needs the model's outputs."""
        measured = self._task.measure(answers, labels)
        for metric in self._added:
            if metric.name not in self.weighted:
                state = state_of(metric, labels, answers[:, -self.outputs :].astype(np.float32))
                measured[metric.name] = float(metric.stateless_result(state))
        return measured
