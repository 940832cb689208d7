"""One number, or several, for each example."""

import dataclasses
import functools
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from trainer.tasks.task import Task, columns


@dataclasses.dataclass(frozen=True)
class Regression(Task):
    """Predictions [N, targets] in the labels' own unit, of one target [N] too, and labels of that shape.

    What is minimised is the squared error of each target in units of its variance in the training split: 1 is what the
    mean would get, whatever the unit, and no target weighs more for being counted in cents.
    """

    meaning: ClassVar[str] = "numbers, one for each target"
    ranking: ClassVar[tuple[str, ...]] = ("rmse",)
    answers: ClassVar[tuple[str, ...]] = ("predictions",)
    targets: tuple[str, ...]  # names of the numbers, in the order of the outputs
    spreads: tuple[float, ...]  # the standard deviation of each

    @property
    def outputs(self) -> int:
        """A number for each target."""
        return len(self.targets)

    def wrong_labels(self, labels: np.ndarray) -> str | None:
        """That they are not finite numbers of the targets."""
        if labels.reshape(len(labels), -1).shape[1] == self.outputs and np.isfinite(labels).all():
            return None
        return (
            f"labels are {labels.dtype} {list(labels.shape)}, and a regression's are finite numbers [N, {self.outputs}]"
        )

    def losses(self, outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The squared error in units of the variances, the mean over the targets."""
        error = columns(outputs) - columns(labels)
        return tf.reduce_mean(tf.square(error / tf.constant(self.spreads)), axis=1)

    @functools.cached_property
    def metrics(self) -> list[keras.metrics.Metric]:
        """`mae`, `mse` and `rmse`, over examples and targets."""
        metrics = keras.metrics
        return [metrics.MeanAbsoluteError("mae"), metrics.MeanSquaredError("mse"), metrics.RootMeanSquaredError("rmse")]

    def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
        """Numbers, float32 [N, targets]."""
        return columns(outputs)

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
        """`rmse` and `mae`, over examples and targets; `r2`, the mean over targets that vary; of several the `rmse` of each.

        `r2` is the coefficient of determination, 1 - (squared error / squared deviation from these labels' mean).
        """
        labels = labels.reshape(len(labels), -1).astype(np.float64)
        error = answers.astype(np.float64) - labels
        squares = (error**2).mean(axis=0)
        variances = labels.var(axis=0)
        mse = squares.mean()
        loss = (squares / np.square(self.spreads)).mean()
        metrics = {"rmse": mse**0.5, "mae": np.abs(error).mean(), "mse": mse, "loss": loss}
        varies = variances > 0
        if varies.any():
            metrics["r2"] = (1 - squares[varies] / variances[varies]).mean()
        if self.outputs > 1:
            metrics |= {f"rmse_{name}": square**0.5 for name, square in zip(self.targets, squares, strict=True)}
        return metrics
