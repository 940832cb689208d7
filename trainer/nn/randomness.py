"""A training step's call of a model, right on every replica: what its layers draw, and what they add to the loss.

    with randomness.deterministic_context(seed=7, step=step, first=first) as added:  # in the replica
        logits = model(features, training=True)
    penalty = randomness.total(added)

Keras keeps the state of random numbers in variables, which replicas do not share, no checkpoint has, and each worker of a
parameter-server job would move on for all others. Inside of `deterministic_context` its generators give seeds that follow from (seed, step,
position in the global batch) instead. So noise is another in every step and on every replica, and a resumed job repeats
it; that of `keras.layers.Dropout`, which would repeat one mask on every replica, does not depend on their number either.

Keras also keeps in the layers what they add to the loss. Replicas of one process share the layers and may take turns in the
middle of a call, so here each has a list of its own.
"""

import contextlib
import contextvars
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.random import seed_generator
from tensorflow.python.ops.control_flow_v2_func_graphs import WhileBodyFuncGraph

_next, _dropout, _add_loss = (
    keras.random.SeedGenerator.next,
    keras.layers.Dropout.call,
    keras.layers.Layer.add_loss,
)
_of_process = seed_generator.global_seed_generator
_PHILOX = 1  # the algorithm's number in TensorFlow's stateless operations


@dataclasses.dataclass
class _Place:
    """Place in training of the innermost `deterministic_context`."""

    key: tf.Tensor  # seed and step, int64 [2]
    first: tf.Tensor  # position in the global batch
    graph: tf.Graph  # in which it has been
    draws: Iterator[int]  # counts them
    added: list[tf.Tensor]  # by layers to the loss


_place: contextvars.ContextVar[_Place | None] = contextvars.ContextVar("place", default=None)


@contextlib.contextmanager
def deterministic_context(
    *, seed: int, step: int | tf.Tensor, first: int | tf.Tensor
) -> Iterator[list[tf.Tensor]]:
    """Layers that are called inside stand at a global step and process its batch from position `first` on.

    Gives the list of what they add to the loss.
    """
    key = tf.stack([seed, tf.cast(step, tf.int64)])
    place = _Place(
        key, tf.cast(first, tf.int64), tf.compat.v1.get_default_graph(), itertools.count(), []
    )
    token = _place.set(place)
    try:
        yield place.added
    finally:
        _place.reset(token)


def total(losses: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns their sum as Keras' `fit` adds it to the mean over a batch, a float32 scalar."""
    return (
        tf.add_n([tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in losses])
        if losses
        else tf.zeros([])
    )


def seed() -> tf.Tensor:
    """Inside of `deterministic_context`: a seed for TensorFlow's stateless operations, int64 [2], another for each replica's part of the batch.

    It follows from what `uniform` follows from, but for the whole part: another split over replicas
    has other numbers.
    """
    drawn, first = _drawn()
    return tf.random.fold_in(drawn, first, alg=_PHILOX)


def uniform(shape: tf.Tensor) -> tf.Tensor:
    """Inside of `deterministic_context`: numbers in [0, 1), float32, of shape [examples, ...].

    Those of an example follow from seed, step, its position in the global batch, how many calls
    came before this one inside the `with`, and the iterations of the loops around it; so each layer
    and each step of a recurrent one has its own, and the split over replicas does not matter.
    """
    drawn, first = _drawn()
    # Philox makes four numbers of each count, so whole counts an example let any position be
    # reached at once.
    numbers = tf.reduce_prod(shape[1:])
    counts = -(-numbers // 4)
    skip = first * tf.cast(counts, tf.int64)
    bits = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[shape[0], 4 * counts],
        key=tf.bitcast(drawn[:1], tf.uint64),
        counter=tf.bitcast(tf.stack([skip, drawn[1]]), tf.uint64),
        alg=_PHILOX,
        dtype=tf.uint32,
    )
    # As TensorFlow makes numbers of bits, in [1, 2) by the fraction alone; XLA would take other
    # bits for it.
    uniform = (
        tf.bitcast(
            tf.bitwise.bitwise_or(tf.bitwise.bitwise_and(bits, 0x7FFFFF), 0x3F800000), tf.float32
        )
        - 1
    )
    return tf.reshape(uniform[:, :numbers], shape)


def _drawn() -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a seed of this call, int64 [2], and the position in the global batch."""
    place = _place.get()
    draw = tf.constant(next(place.draws), tf.int64)
    drawn = tf.random.fold_in(place.key, draw, alg=_PHILOX)
    graph = tf.compat.v1.get_default_graph()
    while graph is not place.graph:
        # The body of a loop is traced once for all iterations, which its first input counts.
        if isinstance(graph, WhileBodyFuncGraph):
            drawn = tf.random.fold_in(drawn, tf.cast(graph.inputs[0], tf.int64), alg=_PHILOX)
        graph = graph.outer_graph
    return drawn, place.first


def _next_by_place(self: keras.random.SeedGenerator, ordered: bool = True) -> tf.Tensor:
    return tf.cast(seed() & 0xFFFFFFFF, tf.uint32) if _place.get() else _next(self, ordered)


def _dropout_by_place(
    self: keras.layers.Dropout, inputs: tf.Tensor, training: bool = False
) -> tf.Tensor:
    whole = self.noise_shape is None and 0 < self.rate < 1
    if not (training and whole and _place.get()):
        return _dropout(self, inputs, training)
    return tf.where(
        uniform(tf.shape(inputs)) >= self.rate, inputs / (1 - self.rate), tf.zeros([], inputs.dtype)
    )


def _add_loss_by_replica(self: keras.layers.Layer, loss: Any) -> None:
    if place := _place.get():
        place.added.extend(tf.convert_to_tensor(part) for part in keras.tree.flatten(loss))
    else:
        _add_loss(self, loss)


class _Stateless:
    """In place of the generator that functions take which are given none: Keras would make it within the step."""

    next = _next_by_place


# In their classes, because nothing lists all generators: a layer may hold them where Keras does not
# look.
keras.random.SeedGenerator.next = _next_by_place
keras.layers.Dropout.call = _dropout_by_place
keras.layers.Layer.add_loss = _add_loss_by_replica
seed_generator.global_seed_generator = lambda: _Stateless() if _place.get() else _of_process()
