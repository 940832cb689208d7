"""A training step's call of a model, right on every replica: what its layers draw, and what they add to the loss.

    with in_training.at(seed=7, step=step, first=first) as added:  # in the replica
        logits = model(features, training=True)
    penalty = in_training.total([*added, *in_training.regularization(model)])

Keras keeps the state of random numbers in variables, which replicas do not share, no checkpoint has, and each worker of a
parameter-server job would move on for all others. Inside of `at` its generators give seeds that follow from (seed, step,
position in the global batch) instead. So noise is another in every step and on every replica, and a resumed job repeats
it; that of `keras.layers.Dropout` does not depend on the number of replicas either.

Keras also keeps in the layers what they add to the loss. Replicas of one process share the layers and may take turns in the
middle of a call, so here each has a list of its own.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.random import seed_generator

from trainer.nn.layers import dropped
from trainer.replicas import step_context

_next, _dropout, _add_loss = keras.random.SeedGenerator.next, keras.layers.Dropout.call, keras.layers.Layer.add_loss
_of_process = seed_generator.global_seed_generator


_added: contextvars.ContextVar[list[tf.Tensor]] = contextvars.ContextVar("added")


@contextlib.contextmanager
def at(*, seed: int, step: int | tf.Tensor, first: int | tf.Tensor) -> Iterator[list[tf.Tensor]]:
    """What `step_context.at` is for our layers, also for Keras' own. Gives what layers add to the loss inside of it."""
    token = _added.set(added := [])
    try:
        with step_context.at(seed=seed, step=step, first=first):
            yield added
    finally:
        _added.reset(token)


def regularization(model: keras.Model) -> list[tf.Tensor]:
    """What the regularisers of the weights that are trained add to the loss, as Keras has it."""
    return [weight.regularizer(weight) for weight in model.trainable_weights if weight.regularizer]


def total(losses: Sequence[tf.Tensor]) -> tf.Tensor:
    """Their sum as Keras' `fit` adds it to the mean over a batch, a float32 scalar."""
    return tf.add_n([tf.reduce_sum(tf.cast(loss, tf.float32)) for loss in losses]) if losses else tf.zeros([])


def _next_by_place(self: keras.random.SeedGenerator, ordered: bool = True) -> tf.Tensor:
    if not step_context.inside():
        return _next(self, ordered)
    return tf.cast(step_context.seed() & 0xFFFFFFFF, tf.uint32)


def _dropout_by_place(self: keras.layers.Dropout, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
    whole = self.noise_shape is None and 0 < self.rate < 1
    if not (training and whole and step_context.inside()):
        return _dropout(self, inputs, training)
    return dropped(inputs, self.rate)


def _add_loss_by_replica(self: keras.layers.Layer, loss: Any) -> None:
    if (added := _added.get(None)) is None:
        _add_loss(self, loss)
    else:
        added += [tf.convert_to_tensor(part) for part in keras.tree.flatten(loss)]


class _Stateless:
    """In place of the generator that functions take which are given none: Keras would make it within the step."""

    def next(self, ordered: bool = True) -> tf.Tensor:
        return _next_by_place(self, ordered)


# In their classes, because nothing lists all generators: a layer may hold them where Keras does not look.
keras.random.SeedGenerator.next = _next_by_place
keras.layers.Dropout.call = _dropout_by_place
keras.layers.Layer.add_loss = _add_loss_by_replica
seed_generator.global_seed_generator = lambda: _Stateless() if step_context.inside() else _of_process()
