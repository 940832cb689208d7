"""Random numbers of layers, and their losses, in a training step that is correct on every replica.

    # In a replica:
    with randomness.deterministic_context(seed=7, step=step, first=first) as added:
        logits = model(features, training=True)
    penalty = randomness.total(added)

Keras keeps the state of random numbers in variables. Replicas do not share these, checkpoints do
not have them, and each worker of a parameter-server job would advance them for all others. Inside
`deterministic_context` its generators give seeds that follow from (seed, step, position in the
global batch) instead. So noise differs between steps and replicas, and a resumed job repeats it.
The noise of `keras.layers.Dropout`, whose mask would otherwise be the same on every replica, does
not depend on the number of replicas either.

Keras also stores in the layers what these add to the loss. Replicas of one process share the layers
and may take turns in the middle of a call, so here each has a list of its own.
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
_PHILOX = 1  # Number of the algorithm in TensorFlow's stateless operations.


@dataclasses.dataclass
class _Place:
    """Place in training of the innermost `deterministic_context`."""

    key: tf.Tensor  # Seed and step, int64 [2].
    first: tf.Tensor  # Position in the global batch.
    graph: tf.Graph  # Graph in which the context was entered.
    draws: Iterator[int]  # Numbers of the draws, from 0.
    added: list[tf.Tensor]  # Losses that layers have added.


_place: contextvars.ContextVar[_Place] = contextvars.ContextVar("place")


@contextlib.contextmanager
def deterministic_context(
    *, seed: int, step: int | tf.Tensor, first: int | tf.Tensor
) -> Iterator[list[tf.Tensor]]:
    """Makes random numbers of the layers that are called inside depend on the place in training.

    Args:
      seed: Seed of the job.
      step: Global step, an integer scalar.
      first: Position in the global batch of the first example of this replica.

    Yields:
      A list that gets the losses that layers add.
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
    """Returns the sum of added losses, a float32 scalar; 0 for none.

    Keras' `fit` adds this to the mean loss of a batch.
    """
    return (
        tf.add_n([tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in losses])
        if losses
        else tf.zeros([])
    )


def seed() -> tf.Tensor:
    """Returns a new seed for TensorFlow's stateless operations, int64 [2].

    It must be called inside `deterministic_context`. The seed follows from the same values as the
    numbers of `uniform`, and is another one for each replica's part of the batch. So random numbers
    by it depend on how the batch is split over replicas.
    """
    drawn, first = _drawn()
    return tf.random.fold_in(drawn, first, alg=_PHILOX)


def uniform(shape: tf.Tensor) -> tf.Tensor:
    """Returns uniform numbers in [0, 1), float32, one set for each example.

    It must be called inside `deterministic_context`. The numbers of an example follow from seed,
    step, its position in the global batch, the number of earlier calls inside the context, and the
    iterations of the loops around it. So each layer, and each step of a recurrent one, has its own,
    and they do not depend on how the batch is split over replicas.

    Args:
      shape: Shape of the result, [examples, ...].
    """
    drawn, first = _drawn()
    # Philox makes four numbers for each value of its counter. Each example gets a whole number of
    # counter values, so that the numbers of any position can be computed directly.
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
    # Bits become numbers as in TensorFlow's own kernels: they are the fraction of a number in
    # [1, 2). XLA's `StatelessRandomUniform` would use other bits.
    uniform = (
        tf.bitcast(
            tf.bitwise.bitwise_or(tf.bitwise.bitwise_and(bits, 0x7FFFFF), 0x3F800000), tf.float32
        )
        - 1
    )
    return tf.reshape(uniform[:, :numbers], shape)


def _drawn() -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a new seed, and the position of this replica's first example in the global batch.

    It must be called inside `deterministic_context`. The seed, int64 [2], follows from the seed and
    step there, the number of earlier calls, and the iterations of the loops around it; it is the
    same for all replicas. The position is an int64 scalar.
    """
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
    return tf.cast(seed() & 0xFFFFFFFF, tf.uint32) if _place.get(None) else _next(self, ordered)


def _dropout_by_place(
    self: keras.layers.Dropout, inputs: tf.Tensor, training: bool = False
) -> tf.Tensor:
    whole = self.noise_shape is None and 0 < self.rate < 1
    if not (training and whole and _place.get(None)):
        return _dropout(self, inputs, training)
    return tf.where(
        uniform(tf.shape(inputs)) >= self.rate, inputs / (1 - self.rate), tf.zeros([], inputs.dtype)
    )


def _add_loss_by_replica(self: keras.layers.Layer, loss: Any) -> None:
    if place := _place.get(None):
        place.added.extend(tf.convert_to_tensor(part) for part in keras.tree.flatten(loss))
    else:
        _add_loss(self, loss)


class _Stateless:
    """Stand-in for Keras' global generator, which Keras would otherwise create within the step."""

    next = _next_by_place


# The methods of the classes are replaced, because generators cannot be listed: a layer may hold
# them where Keras does not track them.
keras.random.SeedGenerator.next = _next_by_place
keras.layers.Dropout.call = _dropout_by_place
keras.layers.Layer.add_loss = _add_loss_by_replica
seed_generator.global_seed_generator = lambda: _Stateless() if _place.get(None) else _of_process()
