"""Sums of small tensors over the replicas, inside a step.

    total = collectives.sum_over_replicas(part)

Batch normalisation waits for two such sums a layer, so what counts is how long one takes and not how much it carries.
"""

import tensorflow as tf


def sum_over_replicas(part: tf.Tensor) -> tf.Tensor:
    """Returns the sum of what all replicas bring, of one shape; the same bits on each. In a replica context.

    Between the processes of an all-reduce strategy on CPUs, every replica gathers all parts and adds them itself. That
    takes N - 1 messages one after the other in place of the 2(N - 1) of a ring all-reduce, and the operation is used
    without the strategy's bookkeeping: with two local processes 0.5 ms and not 1.05 ms.
    """
    replica = tf.distribute.get_replica_context()
    group = _group(replica.strategy)
    if group is None:
        return replica.all_reduce("SUM", part)
    parts = tf.raw_ops.CollectiveGatherV2(input=part[None], ordering_token=[], communication_hint="ring", **group)
    return tf.reduce_sum(parts, axis=0)


def _group(strategy: tf.distribute.Strategy) -> dict[str, int] | None:
    """Returns what joins a process's only CPU replica to those of the other processes.

    None without such a group, or if another TensorFlow keeps it elsewhere: it has no public name.
    """
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    try:
        (launcher,) = strategy.extended._cross_device_ops._launchers
        if "CPU" not in launcher._device:
            return None
        key = launcher._group_key
        # Fixed when the step is traced, which all replicas do alike; a call-time key costs a transfer at each step.
        instance = launcher._collective_keys.get_instance_key(key, launcher._device)
        return {"group_size": launcher._group_size, "group_key": key, "instance_key": instance}
    except (AttributeError, TypeError, ValueError):  # ValueError: several replicas
        return None
