"""One number, or several, for each example."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf

from trainer.nn.tasks.base import Task, columns


@dataclasses.dataclass(frozen=True)
class Regression(Task):
    """Predictions [N, targets] in the labels' own unit, of one target [N] too, and labels of that shape.

    What is minimised is the squared error of each target in units of its variance in the training split: 1 is what the
    mean would get, whatever the unit, and no target weighs more for being counted in cents.

    Attributes:
      targets: Names of the numbers, in the order of the outputs.
      spreads: Standard deviation of each.
    """

    meaning: ClassVar[str] = "numbers, one for each target"
    metrics: ClassVar[tuple[str, ...]] = ("mae", "mse")
    ranking: ClassVar[tuple[str, ...]] = ("rmse",)
    answers: ClassVar[tuple[str, ...]] = ("predictions",)
    targets: tuple[str, ...]
    spreads: tuple[float, ...]

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

    def metric_sums(self, outputs: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """The absolute error and the squared one, means over the targets."""
        error = columns(outputs) - columns(labels)
        return tuple(tf.reduce_sum(part) / self.outputs for part in (tf.abs(error), tf.square(error)))

    def score(self, means: Sequence[float], evidence: Sequence[tuple[tf.Tensor, ...]]) -> dict[str, float]:
        """`loss`, `mae`, `mse`, and `rmse`, its root."""
        found = super().score(means, evidence)
        return {**found, "rmse": found["mse"] ** 0.5}

    def answer(self, outputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """`predictions` float32 [N, targets]."""
        return {"predictions": columns(outputs)}

    def measure(self, answers: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        """`rmse` and `mae`, over examples and targets; `r2`, the mean over targets that vary; of several the `rmse` of each.

        `r2` is the coefficient of determination, 1 - (squared error / squared deviation from these labels' mean).
        """
        labels = labels.reshape(len(labels), -1).astype(np.float64)
        error = answers.astype(np.float64) - labels
        squares, spread = (error**2).mean(axis=0), labels.var(axis=0)
        loss = (squares / np.square(self.spreads)).mean()
        found = {"rmse": squares.mean() ** 0.5, "mae": np.abs(error).mean(), "mse": squares.mean(), "loss": loss}
        if spread.any():
            found["r2"] = (1 - squares[spread > 0] / spread[spread > 0]).mean()
        if self.outputs > 1:
            found |= {f"rmse_{name}": square**0.5 for name, square in zip(self.targets, squares, strict=True)}
        return {name: float(value) for name, value in found.items()}
