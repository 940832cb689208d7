"""Sums of small tensors over the replicas, inside a step.

    total = collectives.sum_over_replicas(part)

Batch normalisation waits for two such sums per layer, so latency matters here, and not throughput.
"""

import tensorflow as tf


def sum_over_replicas(part: tf.Tensor) -> tf.Tensor:
    """Returns the sum of `part` over all replicas, with the same bits on each.

    It must be called in a replica context, on all replicas, with tensors of one shape.

    Between the processes of an all-reduce strategy on CPUs, every replica gathers all parts and
    adds them itself. That takes N - 1 messages one after the other, in place of the 2(N - 1) of a
    ring all-reduce, and avoids the strategy's bookkeeping: with two local processes 0.5 ms in place
    of 1.05 ms.
    """
    replica = tf.distribute.get_replica_context()
    launchers = []
    if isinstance(replica.strategy, tf.distribute.MultiWorkerMirroredStrategy):
        # There is one launcher for each device of this process.
        launchers = replica.strategy.extended._cross_device_ops._launchers
    if len(launchers) != 1 or "CPU" not in launchers[0]._device:
        return replica.all_reduce("SUM", part)
    key = launchers[0]._group_key
    parts = tf.raw_ops.CollectiveGatherV2(
        input=part[None],
        group_size=launchers[0]._group_size,
        group_key=key,
        # The key is fixed when the step is traced, which all replicas do alike. A key that is made
        # when the step runs would cost a transfer in each step.
        instance_key=launchers[0]._collective_keys.get_instance_key(key, launchers[0]._device),
        ordering_token=[],
        communication_hint="ring",
    )
    return tf.reduce_sum(parts, axis=0)
