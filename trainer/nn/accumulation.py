"""The gradients of a batch, part after part, so that the activations of only one part are in memory.

values, gradients = accumulated(step.differentiate, 4, batch, step_number, first=0, count=128)
"""

from collections.abc import Callable

import tensorflow as tf

from trainer.data.reader.storage import Columns

Gradient = tf.Tensor | tf.IndexedSlices | None
# From columns, the step, the first position in the global batch and the count of examples to values and gradients, of
# which those of two parts of a batch add up to those of the whole.
Differentiate = Callable[[Columns, tf.Tensor, int | tf.Tensor, int | tf.Tensor], tuple[tf.Tensor, list[Gradient]]]


def accumulated(
    differentiate: Differentiate,
    parts: int,
    batch: Columns,
    step: tf.Tensor,
    first: int | tf.Tensor,
    count: int | tf.Tensor,
) -> tuple[tf.Tensor, list[Gradient]]:
    """What `differentiate` gives for the batch, found in `parts` whose sizes differ by at most one.

    The parts stand one after the other in the graph, not in a loop of it, where replicas of one process could not
    exchange the statistics of a layer. So tracing takes as many times as long.
    """
    values, gradients = None, []
    for i in range(parts):
        start, end = i * count // parts, (i + 1) * count // parts
        # A part begins when the one before has its gradients; else all would be in memory at once.
        done = [tensor for tensor in tf.nest.flatten(gradients, expand_composites=True) if tensor is not None]
        with tf.control_dependencies(done):
            part = {name: column[start:end] for name, column in batch.items()}
            found, more = differentiate(part, step, first + start, end - start)
        if values is None:
            values, gradients = found, more
        else:
            values, gradients = values + found, [_sum(a, b) for a, b in zip(gradients, more, strict=True)]
    return values, gradients


def _sum(a: Gradient, b: Gradient) -> Gradient:
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, tf.IndexedSlices) and isinstance(b, tf.IndexedSlices):
        both = [tf.concat(pair, 0) for pair in ((a.values, b.values), (a.indices, b.indices))]
        return tf.IndexedSlices(*both, a.dense_shape)
    return tf.convert_to_tensor(a) + tf.convert_to_tensor(b)
