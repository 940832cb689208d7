"""Layers for several replicas: batch normalisation, embeddings, and outputs in units.

By default no layer of Keras 3 combines the statistics of replicas, and none uses TensorFlow's fused
operation. One of these layers replaces its own:

    x = BatchNormalization(decay=0.9)(x)
"""

from typing import Any

import keras
import tensorflow as tf

from common.manifest import REGRESSION, Manifest
from trainer.cluster import collectives


class BatchNormalization(keras.layers.Layer):
    """Batch normalisation of images over all axes but the last, also over several replicas.

    Ioffe and Szegedy 2015, arXiv:1502.03167. It computes the same numbers as
    `keras.layers.BatchNormalization`; the moving variance is that of the batch (divided by n, not
    by n - 1 as in TensorFlow's fused operation). On one replica the fused operation does all of it.
    On several:

    - The moving statistics follow the moments of the whole batch, so they are equal on all replicas
      after every step.
    - Each replica normalises by these moments too, as one replica with the whole batch would. The
      replicas' parts may differ in size. Each layer costs one exchange forward and one backward.
      (On GPUs TensorFlow 2.21 has no deterministic operation for it, and fails if op determinism is
      on.)

    The workers of a parameter-server job do not step together: each normalises by its own batch and
    updates the shared moving statistics; an update may overwrite that of another worker.

    Inputs may be bfloat16; statistics are float32. With `trainable = False` the layer runs in
    inference mode, as in Keras.

    Args:
      decay: Part of the moving statistics that remains in each step.
      epsilon: Number that is added to variances.
      **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(self, *, decay: float = 0.997, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.decay, self.epsilon = decay, epsilon

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates gamma, beta and the moving statistics, [channels] each."""
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
        """Normalises images [N, height, width, channels].

        With `training`, and if the layer is trainable, it uses the moments of the batch over all
        replicas, and updates the moving statistics by them. Otherwise it uses these statistics.
        """
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
        """Normalises x by the moments of the whole batch, over all replicas in sync.

        Returns:
          x normalised, then scaled by gamma and shifted by beta; and mean and variance of each
          channel, float32 [channels].
        """
        replica = tf.distribute.get_replica_context()
        if replica is None or replica.num_replicas_in_sync == 1:
            return self._fused(x, gamma, beta)[:3]

        @tf.custom_gradient
        def synchronised(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[Any, Any]:
            # The fused operation computes the moments of this part faster than reductions do; its
            # first result is not used.
            _, mean, variance, count = self._fused(x, gamma, beta)
            # Sums of squares are taken about the moving mean, which all replicas share: about 0,
            # a large mean would cancel the variance's digits.
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
                # So far the moments counted as constants. The gradient through them is affine in
                # the normalised x, so the same operation computes it.
                whole = collectives.sum_over_replicas(tf.stack([d_gamma, d_beta]))
                scale, offset = tf.unstack(
                    whole * (-gamma * tf.math.rsqrt(variance + self.epsilon) / total)
                )
                return dx + self._affine(x, scale, offset, mean, variance), d_gamma, d_beta

            return (self._affine(x, gamma, beta, mean, variance), mean, variance), gradient

        return synchronised(x, gamma, beta)

    def _fused(self, x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Normalises x by the moments of this replica's part of the batch alone.

        Returns:
          x normalised, then scaled by gamma and shifted by beta; mean and variance (divided by n)
          of each channel, float32 [channels]; and n, the number of values of x in each channel, a
          float32 scalar.
        """
        y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=self.epsilon)
        count = tf.cast(tf.size(x) // x.shape[-1], tf.float32)
        return y, mean, variance * (tf.maximum(count - 1, 1) / count), count

    def _affine(self, x: tf.Tensor, scale: Any, offset: Any, mean: Any, variance: Any) -> tf.Tensor:
        """Returns x normalised by these moments, then scaled and shifted, in one pass."""
        return tf.compat.v1.nn.fused_batch_norm(
            x, scale, offset, mean, variance, epsilon=self.epsilon, is_training=False
        )[0]


def synchronize(model: keras.Model) -> int:
    """Makes Keras' own batch normalisation use the moments of the batch over all replicas.

    Without it each replica would keep moving statistics of its own, and those of the first one
    would be saved. It sets the attribute `synchronized` of the layers that are trainable.

    Returns:
      Number of layers that were changed.
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
    """Returns whether layers of the model communicate with other replicas within a step.

    These are the trainable layers of batch normalisation, of this module or (by `synchronize`) of
    Keras.
    """
    kinds = (BatchNormalization, keras.layers.BatchNormalization)
    return any(isinstance(layer, kinds) and layer.trainable for layer in model._flatten_layers())


class Embedding(keras.layers.Layer):
    """Layer that looks up rows [N, K, size] of a table [rows, size] by their indices [N, K].

    From a table on a parameter server only the rows of a batch, and their gradients, are
    transferred. Keras' own layer would fetch the whole table, and cast it, in every step.

    Args:
      rows: Number of rows.
      size: Number of weights in a row.
      initializer: Initializer of the table.
      **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(
        self, rows: int, size: int, *, initializer: keras.initializers.Initializer, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.rows, self.size, self._initializer = rows, size, initializer

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the table."""
        self.table = self.add_weight(
            name="embeddings",
            shape=(self.rows, self.size),
            initializer=self._initializer,
            autocast=False,
        )

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the shape of the inputs with `size` behind it."""
        return *input_shape, self.size

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Returns the rows, in the layer's compute dtype."""
        return tf.cast(tf.gather(self.table.value, inputs), self.compute_dtype)


def in_units(manifest: Manifest, outputs: keras.KerasTensor) -> keras.KerasTensor:
    """Returns a network's outputs [N, k] as its task takes them.

    Logits stay as they are. Those of a regression are converted, in float32, from standard
    deviations from the training split's mean to the targets' units: the outputs of a new network
    are near 0 and move by about its learning rate in a step.

    Raises:
      UserError: If a dataset for regression has no training examples.
    """
    if manifest.task != REGRESSION:
        return outputs
    means, spreads = zip(*manifest.target_spreads, strict=True)
    return keras.layers.Rescaling(list(spreads), list(means), dtype="float32", name="in_units")(
        outputs
    )
