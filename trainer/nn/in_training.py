"""A training step's call of a model, in which Keras' own layers draw by the place in training.

    with in_training.at(seed=7, step=step, first=first):  # in the replica
        logits = model(features, training=True)

Keras keeps the state of random numbers in variables, which replicas do not share, no checkpoint has, and each worker of a
parameter-server job would move on for all others. Inside of `at` its generators give seeds that follow from (seed, step,
position in the global batch) instead. So noise is another in every step and on every replica, and a resumed job repeats
it; that of `keras.layers.Dropout` does not depend on the number of replicas either.
"""

import contextlib
from collections.abc import Iterator

import keras
import tensorflow as tf
from keras.src.random import seed_generator

from trainer.nn.layers import dropped
from trainer.replicas import step_context

_next, _dropout = keras.random.SeedGenerator.next, keras.layers.Dropout.call
_of_process = seed_generator.global_seed_generator


@contextlib.contextmanager
def at(*, seed: int, step: int | tf.Tensor, first: int | tf.Tensor) -> Iterator[None]:
    """What `step_context.at` is for our layers, also for Keras' own."""
    with step_context.at(seed=seed, step=step, first=first):
        yield


def _next_by_place(self: keras.random.SeedGenerator, ordered: bool = True) -> tf.Tensor:
    if not step_context.inside():
        return _next(self, ordered)
    return tf.cast(step_context.seed() & 0xFFFFFFFF, tf.uint32)


def _dropout_by_place(self: keras.layers.Dropout, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
    whole = self.noise_shape is None and 0 < self.rate < 1
    if not (training and whole and step_context.inside()):
        return _dropout(self, inputs, training)
    return dropped(inputs, self.rate)


class _Stateless:
    """In place of the generator that functions take which are given none: Keras would make it within the step."""

    def next(self, ordered: bool = True) -> tf.Tensor:
        return _next_by_place(self, ordered)


# In their classes, because nothing lists all generators: a layer may hold them where Keras does not look.
keras.random.SeedGenerator.next = _next_by_place
keras.layers.Dropout.call = _dropout_by_place
seed_generator.global_seed_generator = lambda: _Stateless() if step_context.inside() else _of_process()
