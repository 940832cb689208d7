"""Layers of the models here, for several replicas: batch normalisation, embeddings, outputs in units.

Keras 3 combines the statistics of replicas by default in no layer, and does not use TensorFlow's
fused operation. One of these layers replaces its own:

    x = BatchNormalization(decay=0.9)(x)
"""

from typing import Any

import keras
import tensorflow as tf

from common.manifest import REGRESSION, Manifest
from trainer.cluster import collectives


class BatchNormalization(keras.layers.Layer):
    """Batch normalisation of images over all axes but the last (Ioffe and Szegedy 2015, arXiv:1502.03167).

    The same numbers as `keras.layers.BatchNormalization`, the moving variance being that of the
    batch (divided by n, not by n - 1 as TensorFlow's fused operation has it). On one replica the
    fused operation does it all. On several:

    - The moving statistics follow the moments of the whole batch, so they are equal on all replicas
      after every step.
    - Each replica normalises by these moments too, as one replica with the whole batch would; the
      replicas' parts may differ in size. Each layer costs one exchange forward and one backward.
      (On GPUs TensorFlow 2.21 has no deterministic operation for it and refuses when op determinism
      is on.)

    The workers of a parameter-server job do not step together: each normalises by its own batch and
    updates the shared moving statistics; an update may overwrite that of another worker.

    Inputs may be bfloat16; statistics are float32. With `trainable = False` the layer infers, as in
    Keras.
    """

    def __init__(self, *, decay: float = 0.997, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.decay, self.epsilon = decay, epsilon

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Makes gamma, beta and the moving statistics, [channels] each."""
        options = {"shape": input_shape[-1:], "autocast": False}
        self.gamma = self.add_weight(name="gamma", initializer="ones", **options)
        self.beta = self.add_weight(name="beta", initializer="zeros", **options)
        self.moving_mean = self.add_weight(
            name="moving_mean", initializer="zeros", trainable=False, **options
        )
        self.moving_variance = self.add_weight(
            name="moving_variance", initializer="ones", trainable=False, **options
        )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the inputs."""
        return input_shape

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Normalises [N, height, width, channels]; with `training` by the batch, whose moments join the moving statistics."""
        gamma, beta = tf.convert_to_tensor(self.gamma), tf.convert_to_tensor(self.beta)
        if not (training and self.trainable):
            return self._affine(inputs, gamma, beta, self.moving_mean, self.moving_variance)
        y, mean, variance = self._normalise_by_batch(inputs, gamma, beta)
        for moving, batch in ((self.moving_mean, mean), (self.moving_variance, variance)):
            moving.assign(moving * self.decay + batch * (1 - self.decay))
        return y

    def _normalise_by_batch(
        self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns y, and mean and variance of the whole batch."""
        replica = tf.distribute.get_replica_context()
        if replica is None or replica.num_replicas_in_sync == 1:
            return self._fused(x, gamma, beta)[:3]

        @tf.custom_gradient
        def synchronised(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[Any, Any]:
            # The fused operation finds the moments of this part faster than reductions do; its y is
            # not used.
            _, mean, variance, count = self._fused(x, gamma, beta)
            # Sums of squares about the moving mean, which all replicas share, lest a large mean
            # drown the variance.
            origin = tf.convert_to_tensor(self.moving_mean)
            shift = mean - origin
            sums = tf.concat([count * shift, count * (variance + shift**2), [count]], 0)
            first, second, total = tf.split(
                collectives.sum_over_replicas(sums), [*mean.shape, *mean.shape, 1]
            )
            shift = first / total
            mean, variance = origin + shift, second / total - shift**2

            def gradient(dy: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
                dx, d_gamma, d_beta, *_ = tf.raw_ops.FusedBatchNormGradV3(
                    y_backprop=dy,
                    x=x,
                    scale=gamma,
                    reserve_space_1=mean,
                    reserve_space_2=variance,
                    reserve_space_3=tf.zeros([0]),
                    epsilon=self.epsilon,
                    is_training=False,
                )
                # So far the moments counted as constants. What x does through them is affine in the
                # normalised x.
                whole = collectives.sum_over_replicas(tf.stack([d_gamma, d_beta]))
                scale, offset = tf.unstack(
                    whole * (-gamma * tf.math.rsqrt(variance + self.epsilon) / total)
                )
                return dx + self._affine(x, scale, offset, mean, variance), d_gamma, d_beta

            return (self._affine(x, gamma, beta, mean, variance), mean, variance), gradient

        return synchronised(x, gamma, beta)

    def _fused(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns y, mean, variance and count of one replica's part."""
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=self.epsilon)
        count = tf.cast(tf.size(x) // x.shape[-1], tf.float32)
        return y, mean, variance * (tf.maximum(count - 1, 1) / count), count

    def _affine(self, x: tf.Tensor, scale: Any, offset: Any, mean: Any, variance: Any) -> tf.Tensor:
        """Returns x normalised by these moments, in one pass."""
        return tf.compat.v1.nn.fused_batch_norm(
            x, scale, offset, mean, variance, epsilon=self.epsilon, is_training=False
        )[0]


def synchronize(model: keras.Model) -> int:
    """Lets Keras' own batch normalisation go by the moments of the whole batch; returns how many layers that changes.

    It is made for that, with `synchronized=True`; without, each replica would keep moving
    statistics of its own, and the first one's would be saved.
    """
    changed = 0
    for layer in model._flatten_layers():
        if (
            isinstance(layer, keras.layers.BatchNormalization)
            and layer.trainable
            and not layer.synchronized
        ):
            layer.synchronized = True
            changed += 1
    return changed


def exchanges(model: keras.Model) -> bool:
    """Returns whether layers of the model talk to other replicas in the middle of a step."""
    kinds = (BatchNormalization, keras.layers.BatchNormalization)
    return any(isinstance(layer, kinds) and layer.trainable for layer in model._flatten_layers())


class Embedding(keras.layers.Layer):
    """Rows [N, K, size] of a table [rows, size] by their numbers [N, K].

    Of a table on a parameter server only the rows of a batch, and their gradients, travel; Keras'
    own layer would fetch the whole table, and cast it, in every step.
    """

    def __init__(
        self, rows: int, size: int, *, initializer: keras.initializers.Initializer, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.rows, self.size, self._initializer = rows, size, initializer

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Makes the table."""
        self.table = self.add_weight(
            name="embeddings",
            shape=(self.rows, self.size),
            initializer=self._initializer,
            autocast=False,
        )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns one row for each number."""
        return *input_shape, self.size

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Gathers the rows."""
        return tf.cast(tf.gather(self.table.value, inputs), self.compute_dtype)


def in_units(manifest: Manifest, outputs: keras.KerasTensor) -> keras.KerasTensor:
    """Returns outputs [N, k] of a network as its task takes them, in float32: logits as they are, numbers in the targets' units.

    A network's outputs begin around 0 and move by about its learning rate in a step; so those of a
    regression count standard deviations from the mean of the training split.
    """
    if manifest.task != REGRESSION:
        return outputs
    means, spreads = zip(*manifest.target_spreads, strict=True)
    return keras.layers.Rescaling(list(spreads), list(means), dtype="float32", name="in_units")(
        outputs
    )
