"""Where in training a model call stands, for layers that draw random numbers.

The train step says it, and the layers draw numbers that are a pure function of it:

    with step_context.at(seed=7, step=step, first=first):  # in the replica
        logits = model(features, training=True)

    mask = step_context.uniform(tf.shape(x)) >= 0.5  # in a layer
    seed = step_context.seed()                       # or for a generator of its own
"""

import contextlib
import contextvars
import itertools
from collections.abc import Iterator

import tensorflow as tf

_PHILOX = 1  # the algorithm's number in TensorFlow's stateless operations


# The three of `at`, and what counts the draws.
_place: contextvars.ContextVar[tuple[int, tf.Tensor, int | tf.Tensor, Iterator[int]]] = contextvars.ContextVar("place")


@contextlib.contextmanager
def at(*, seed: int, step: int | tf.Tensor, first: int | tf.Tensor) -> Iterator[None]:
    """Layers called inside this stand at a global step and process its batch from position `first` on."""
    token = _place.set((seed, step, first, itertools.count()))
    try:
        yield
    finally:
        _place.reset(token)


def inside() -> bool:
    """Whether this is called inside of `at`."""
    return _place.get(None) is not None


def seed() -> tf.Tensor:
    """A seed for TensorFlow's stateless operations, int64 [2], that is another for each replica's part of the batch.

    It follows from what `uniform` follows from, but for the whole part: another split over replicas has other numbers.

    Raises:
      RuntimeError: Outside of `at`.
    """
    drawn, first = _drawn()
    return tf.random.fold_in(drawn, tf.cast(first, tf.int64), alg=_PHILOX)


def _drawn() -> tuple[tf.Tensor, int | tf.Tensor]:
    """A seed of this call, int64 [2], and the position in the global batch."""
    try:
        job_seed, step, first, draws = _place.get()
    except LookupError:
        raise RuntimeError(
            "random numbers are drawn by step: call the model inside `with step_context.at(...)`"
        ) from None
    return tf.random.fold_in(tf.stack([job_seed, tf.cast(step, tf.int64)]), next(draws), alg=_PHILOX), first


def uniform(shape: tf.Tensor) -> tf.Tensor:
    """Numbers in [0, 1), float32, of shape [examples, ...].

    Those of an example follow from seed, step, its position in the global batch, and how many calls came before this one
    inside the `with`; so each layer has its own, and the split over replicas does not matter.

    Raises:
      RuntimeError: Outside of `at`.
    """
    drawn, first = _drawn()
    # TensorFlow's own operation for it gives others of some seeds where XLA compiles it.
    key, offset = tf.split(
        tf.random.stateless_uniform([2], drawn, minval=None, maxval=None, dtype=tf.uint64, alg=_PHILOX), 2
    )
    # Philox makes four numbers of each count, so whole counts an example let any position be reached at once.
    counts = -(-tf.reduce_prod(shape[1:]) // 4)
    skip = tf.cast(first, tf.int64) * tf.cast(counts, tf.int64)
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[shape[0], 4 * counts],
        key=key,
        counter=tf.concat([tf.cast([skip], tf.uint64), offset], 0),
        alg=_PHILOX,
        dtype=tf.uint32,
    )
    # As TensorFlow makes numbers of bits, in [1, 2) by the fraction alone; XLA would take other bits for it.
    numbers = tf.bitcast(tf.bitwise.bitwise_or(tf.bitwise.bitwise_and(bits, 0x7FFFFF), 0x3F800000), tf.float32) - 1
    return tf.reshape(numbers[:, : tf.reduce_prod(shape[1:])], shape)
